package config

import (
	"encoding/json"
	"reflect"
)

// A schema is an object of JSON Schema.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of configuration files, for editors and
// for checks before a deployment.
func Schema() []byte {
	root := objectSchema(reflect.TypeFor[model]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Configuration of an event bus"
	root["$defs"] = schema{"filledIn": schema{
		"description": "A text with ${VARIABLE} of the environment.",
		"type":        "string", "pattern": `\$\{[A-Za-z_][A-Za-z0-9_]*\}`,
	}}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("config: " + err.Error()) // maps, texts and numbers only
	}
	return append(text, '\n')
}

// objectSchema returns the schema of t, a struct of the model.
func objectSchema(t reflect.Type) schema {
	properties := schema{}
	o := schema{"type": "object", "additionalProperties": false, "properties": properties}
	var required []string
	for _, f := range fields(t) {
		s := withDoc(valueSchema(f.typ, f), f)
		properties[f.key] = s
		file, ok := f.file()
		switch {
		case ok:
			properties[file] = schema{"type": "string", "minLength": 1, "description": fileDoc(f)}
			if f.required {
				o["oneOf"] = []schema{{"required": []string{f.key}}, {"required": []string{file}}}
			}
		case f.alternative != "":
			o["oneOf"] = []schema{{"required": []string{f.key}}, {"required": []string{f.alternative}}}
		case f.required:
			required = append(required, f.key)
		}
	}
	if required != nil {
		o["required"] = required
	}
	if rest := restOf(t); rest != nil {
		o["additionalProperties"] = withDoc(valueSchema(rest.typ.Elem(), rest), rest)
	}
	return o
}

// fileDoc returns the documentation of the key that names the file with a secret.
func fileDoc(f *field) string {
	return "The path of a file that contains " + f.key + ". A relative path starts at the directory of this file."
}

func valueSchema(t reflect.Type, f *field) schema {
	if l, ok := leafOf(reflect.New(t).Elem()); ok {
		s := l.schema(f)
		if s["type"] == "string" && s["pattern"] == nil || t == reflect.TypeFor[setting]() {
			return s // accepts ${VARIABLE} anyway
		}
		return schema{"anyOf": []schema{s, {"$ref": "#/$defs/filledIn"}}}
	}
	if t.Kind() == reflect.Slice {
		return schema{"type": "array", "minItems": 1, "items": valueSchema(t.Elem(), f)}
	}
	if t.Kind() == reflect.Map {
		return schema{
			"type":                 "object",
			"propertyNames":        (*name)(nil).schema(nil),
			"additionalProperties": entrySchema(t.Elem(), f),
		}
	}
	return objectSchema(t)
}

// entrySchema returns the schema of one entry of f, a mapping with names as keys. t is the
// type of the entry.
func entrySchema(t reflect.Type, f *field) schema {
	s := valueSchema(t, f)
	if f.eachDoc != "" && t.Kind() != reflect.String {
		s["description"] = f.eachDoc
	}
	return s
}

// withDoc adds the documentation, the example and the default of f to s.
func withDoc(s schema, f *field) schema {
	s["description"] = f.doc
	if f.example != "" {
		s["examples"] = []string{f.example}
	}
	if f.defaultText != "" {
		var v any
		if json.Unmarshal([]byte(f.defaultText), &v) != nil {
			v = f.defaultText
		}
		s["default"] = v
	}
	return s
}

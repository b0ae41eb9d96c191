package codec

import (
	"cmp"
	"fmt"
	"mime"
	"strconv"
)

// Versions is a codec for payloads whose shape has changed over time. The parameter "version" of
// the content type says which shape a payload has, as in "application/json; version=2"; without it,
// the version is 1. Versions writes the newest version, which is len(Upcasts) + 1.
//
// To decode an older payload, Versions calls the upcasters from its version on, one after another,
// and decodes the last result. A payload newer than the newest version is an error, so deploy
// readers of a new version before writers.
type Versions struct {
	Codec   Codec      // encodes and decodes the newest version; nil means JSON
	Upcasts []Upcaster // Upcasts[i] turns version i+1 of a payload into version i+2
}

// An Upcaster turns a payload of one version into the next version. It must not modify old.
type Upcaster func(old []byte) ([]byte, error)

var _ Decoder = Versions{}

func (v Versions) codec() Codec {
	if v.Codec == nil {
		return JSON{}
	}
	return v.Codec
}

func (v Versions) newest() int { return len(v.Upcasts) + 1 }

// ContentType returns the content type of v.Codec, by default application/octet-stream. If the
// newest version is not 1, it has the parameter "version".
func (v Versions) ContentType() string {
	if v.newest() == 1 {
		return v.codec().ContentType()
	}
	return cmp.Or(v.codec().ContentType(), "application/octet-stream") + "; version=" + strconv.Itoa(v.newest())
}

// Marshal encodes value as a payload of the newest version.
func (v Versions) Marshal(value any) ([]byte, error) { return v.codec().Marshal(value) }

// Unmarshal decodes a payload of the newest version.
func (v Versions) Unmarshal(data []byte, value any) error { return v.codec().Unmarshal(data, value) }

// Decode decodes a payload of any known version, given by contentType, into value, a pointer. A
// version newer than the newest known one is an error.
func (v Versions) Decode(contentType string, data []byte, value any) error {
	if err := refusal(v.codec(), contentType); err != nil {
		return err
	}
	version, err := versionOf(contentType)
	switch {
	case err != nil:
		return err
	case version > v.newest():
		return fmt.Errorf("codec: payload of version %d, newer than %d, the newest known", version, v.newest())
	}
	for ; version < v.newest(); version++ {
		if data, err = v.Upcasts[version-1](data); err != nil {
			return fmt.Errorf("codec: payload of version %d to %d: %w", version, version+1, err)
		}
	}
	return Decode(v.codec(), contentType, data, value)
}

// versionOf returns the parameter "version" of a content type, or 1 without one.
func versionOf(contentType string) (int, error) {
	if contentType == "" {
		return 1, nil
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, fmt.Errorf("codec: content type %q: %w", contentType, err)
	}
	text, given := params["version"]
	if !given {
		return 1, nil
	}
	version, err := strconv.Atoi(text)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("codec: content type %q has no version that is a number from 1", contentType)
	}
	return version, nil
}

package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A text is any text on one line.
type text string

const maxText = 512

func (t *text) parse(s string, _ *field) error {
	switch {
	case len(s) > maxText:
		return fmt.Errorf("longer than %d bytes", maxText)
	case !utf8.ValidString(s) || strings.IndexFunc(s, unicode.IsControl) >= 0:
		return errors.New("has a control character, or is not UTF-8")
	}
	*t = text(s)
	return nil
}

func (*text) noun(*field) string { return "text" }

func (*text) schema(f *field) schema { return schema{"type": "string", "maxLength": maxText} }

func (*text) style() style { return textStyle }

// A secret is a URL that may hold a password. The URL is in a function, so that printing
// the secret cannot show it.
type secret struct{ reveal func() string }

func (s *secret) parse(text string, _ *field) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return errors.New("empty")
	case err != nil:
		return errors.New("not a URL (special characters in a password are escaped, such as %40 for @, %2F for /, %3F for ? and %23 for #)")
	case u.Scheme == "":
		return errors.New("a URL has a scheme, such as mem: or redis://host:6379")
	}
	s.reveal = func() string { return text }
	return nil
}

func (*secret) noun(*field) string { return "URL" }

func (*secret) schema(*field) schema { return schema{"type": "string", "minLength": 1} }

func (*secret) style() style { return textStyle }

// A setting is a text that the driver interprets.
type setting string

func (s *setting) parse(text string, f *field) error {
	*s = setting(text)
	return nil
}

func (*setting) noun(*field) string { return "setting of the driver" }

func (*setting) schema(*field) schema {
	return schema{"type": []string{"string", "number", "boolean"}}
}

func (*setting) style() style { return anyStyle }

// A flag is true or false.
type flag bool

func (b *flag) parse(s string, _ *field) error {
	if s != "true" && s != "false" {
		return errors.New("neither true nor false")
	}
	*b = s == "true"
	return nil
}

func (*flag) noun(*field) string { return "true or false" }

func (*flag) schema(*field) schema { return schema{"type": "boolean"} }

func (*flag) style() style { return plainStyle }

package config

import (
	"errors"
	"regexp"
	"strings"
)

var reference = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// environment returns a map of variables from a list in the form of os.Environ.
func environment(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, v := range list {
		if name, value, ok := strings.Cut(v, "="); ok {
			m[name] = value
		}
	}
	return m
}

// expand replaces each ${NAME} in text by the environment variable NAME, and $$ by a dollar
// sign. used reports whether text had a ${NAME}.
func expand(text string, environment map[string]string) (expanded string, used bool, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			b.WriteString(text)
			return b.String(), used, nil
		}
		b.WriteString(text[:i])
		text = text[i:]
		found := reference.FindStringSubmatch(text)
		switch {
		case strings.HasPrefix(text, "$$"):
			b.WriteByte('$')
			text = text[2:]
		case found != nil:
			value, ok := environment[found[1]]
			if !ok {
				return "", true, errors.New("the variable " + found[1] + " of the environment is not set")
			}
			b.WriteString(value)
			text = text[len(found[0]):]
			used = true
		default:
			return "", false, errors.New("a dollar begins ${VARIABLE}; a dollar itself is $$")
		}
	}
}

package groupstats

import (
	"encoding/json"
	"strconv"

	"github.com/seed41896749/eventbus/backend"
)

// A Count is a number, or [backend.Unknown].
type Count int64

// Known reports whether c is a number.
func (c Count) Known() bool { return c >= 0 }

// String returns the number as text, or "unknown".
func (c Count) String() string {
	if c < 0 {
		return "unknown"
	}
	return strconv.FormatInt(int64(c), 10)
}

// MarshalJSON returns the number, or null if it is unknown.
func (c Count) MarshalJSON() ([]byte, error) {
	if c < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(c))
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (c *Count) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*c = backend.Unknown
		return nil
	}
	return json.Unmarshal(data, (*int64)(c))
}

// plus adds two counts. The sum is unknown if one of them is.
func (c Count) plus(d Count) Count {
	if !c.Known() || !d.Known() {
		return backend.Unknown
	}
	return c + d
}

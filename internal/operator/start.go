package operator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// Start parses where a group or a reader begins: "earliest", "latest", a time as [Timestamp] takes it, or the
// position after which to begin, with or without the word "after" in front.
func Start(text string) (backend.Start, error) {
	switch text {
	case "":
		return "", errors.New("is empty")
	case "earliest":
		return backend.StartEarliest, nil
	case "latest":
		return backend.StartLatest, nil
	}
	if t, ok := Timestamp(text, time.Now()); ok {
		return backend.StartAt(t), nil
	}
	if hint := nearest.Hint("%s", text, []string{"earliest", "latest"}); hint != "" {
		return "", fmt.Errorf("%q is not a position%s", text, hint)
	}
	return backend.StartAfter(strings.TrimSpace(strings.TrimPrefix(text, "after "))), nil
}

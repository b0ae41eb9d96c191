package console

import (
	"fmt"
	"strings"
)

// A spark is a line of the lag in the last minutes, in an SVG of sparkWidth × sparkHeight.
type spark struct {
	Lines []string // the points of each polyline, which ends where nothing is known
	Label string   // the same in words
}

const (
	sparkWidth  = 90
	sparkHeight = 20
)

// newSpark returns the line of lags, the newest last. A negative lag is not known.
func newSpark(lags []int64) spark {
	most, last, known := int64(0), int64(-1), 0
	for _, lag := range lags {
		most = max(most, lag)
		if lag >= 0 {
			last = lag
			known++
		}
	}
	if known == 0 {
		return spark{Label: "the lag is unknown"}
	}
	s := spark{Label: fmt.Sprintf("lag in the last 15 minutes: now %d, at most %d", last, most)}
	var points []string
	end := func() {
		if len(points) == 1 { // a point alone is a short line
			points = append(points, points[0])
		}
		if len(points) > 0 {
			s.Lines = append(s.Lines, strings.Join(points, " "))
		}
		points = nil
	}
	for i, lag := range lags {
		if lag < 0 {
			end()
			continue
		}
		x := sparkWidth - len(lags) + i + 1
		y := sparkHeight - 1 - float64(lag)/float64(max(most, 1))*(sparkHeight-2)
		points = append(points, fmt.Sprintf("%d,%.1f", x, y))
	}
	end()
	return s
}

package eventbus

import "time"

// parseTime is time.Parse for [time.RFC3339Nano]. It reads UTC itself, as Publish
// writes it: that takes half the time. Whatever else there is, and whatever
// is wrong, it leaves to package time.
func parseTime(s string) (time.Time, error) {
	if t, ok := parseUTC(s); ok {
		return t, nil
	}
	return time.Parse(time.RFC3339Nano, s)
}

func parseUTC(s string) (t time.Time, ok bool) {
	const whole, most = len("2006-01-02T15:04:05"), len("2006-01-02T15:04:05.999999999Z")
	if len(s) <= whole || len(s) > most || s[len(s)-1] != 'Z' ||
		s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return t, false
	}
	century, year, month, day := two(s[0:]), two(s[2:]), two(s[5:]), two(s[8:])
	hour, minute, second := two(s[11:]), two(s[14:]), two(s[17:])
	year += 100 * century
	if century|year|month|day|hour|minute|second < 0 || year < 1 || month < 1 || month > 12 || day < 1 || day > days[month] ||
		hour > 23 || minute > 59 || second > 59 {
		return t, false
	}
	nanos, fraction := int64(0), s[whole:len(s)-1]
	if fraction != "" {
		if len(fraction) == 1 || fraction[0] != '.' {
			return t, false
		}
		for i := 1; i <= 9; i++ {
			nanos *= 10
			if i < len(fraction) {
				d := fraction[i] - '0'
				if d > 9 {
					return t, false
				}
				nanos += int64(d)
			}
		}
	}
	if month <= 2 { // years begin in March: then the day that some have more is the last
		year, month = year-1, month+12
	}
	since1970 := 365*year + year/4 - year/100 + year/400 + (153*month-457)/5 + day - 719469
	return time.Unix(int64(since1970)*86400+int64(hour*3600+minute*60+second), nanos).UTC(), true
}

// days that every year has in a month.
var days = [...]int{1: 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// two returns the number that s begins with, of two digits; less than 0 if it does not.
func two(s string) int {
	a, b := s[0]-'0', s[1]-'0'
	if a > 9 || b > 9 {
		return -1 << 31
	}
	return 10*int(a) + int(b)
}

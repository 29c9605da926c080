package settings

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

func parseString(raw string) (string, error) { return raw, nil }

func formatString(value string) string { return value }

// parseStrings splits at commas. Spaces around a value and values of nothing are left out: "a, b," is a and b.
func parseStrings(raw string) ([]string, error) {
	var values []string
	for value := range strings.SplitSeq(raw, ",") {
		if value = strings.TrimSpace(value); value != "" {
			values = append(values, value)
		}
	}
	return values, nil
}

func formatStrings(values []string) string { return strings.Join(values, ",") }

func parseInt(raw string) (int, error) {
	value, err := strconv.Atoi(raw)
	if err != nil {
		return 0, errors.New("want a whole number")
	}
	return value, nil
}

func formatInt(value int) string { return strconv.Itoa(value) }

func parseBool(raw string) (bool, error) {
	value, err := strconv.ParseBool(raw)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return value, nil
}

func formatBool(value bool) string { return strconv.FormatBool(value) }

func parseDuration(raw string) (time.Duration, error) {
	value, err := time.ParseDuration(raw)
	if err != nil {
		return 0, errors.New("want a length of time with its unit, such as 30s or 5m")
	}
	return value, nil
}

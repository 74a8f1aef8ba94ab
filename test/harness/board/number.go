package board

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the number that an environment variable sets for a test, such as how often
// it repeats what it tests. It is otherwise if the variable is not set.
func Number(t testing.TB, variable string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, want a number", variable, text)
	}
	return n
}

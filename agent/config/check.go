package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checker collects errors. Each error names the field's path, the flag that sets
// the field, the value, and the allowed values.
type checker struct{ errs []error }

func (c *checker) err() error { return errors.Join(c.errs...) }

// invalid adds an error. allowed completes the phrase "it must be".
func (c *checker) invalid(path string, value any, allowed string) {
	c.errs = append(c.errs, fmt.Errorf("%s is %s: it must be %s", withFlag(path), quoted(value), allowed))
}

func quoted(value any) string {
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(value)
}

// withFlag appends the name of the field's flag, if there is one, to its path.
func withFlag(path string) string {
	for i := range boundFlags {
		if boundFlags[i].field == path {
			return path + " (--" + boundFlags[i].name + ")"
		}
	}
	return path
}

func (c *checker) between(path string, value, low, high int64) {
	if value < low || value > high {
		c.invalid(path, value, fmt.Sprintf("between %d and %d", low, high))
	}
}

func (c *checker) atLeast(path string, value, low int64) {
	if value < low {
		c.invalid(path, value, fmt.Sprintf("%d or more", low))
	}
}

func (c *checker) durationAtLeast(path string, d, low time.Duration) {
	if d < low {
		c.invalid(path, d, low.String()+" or longer")
	}
}

func (c *checker) zeroOrDurationAtLeast(path string, d, low time.Duration) {
	if d != 0 && d < low {
		c.invalid(path, d, "0s, or "+low.String()+" or longer")
	}
}

func (c *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.invalid(path, value, "one of "+strings.Join(allowed, ", "))
	}
}

// absolute checks a path that may be unset.
func (c *checker) absolute(path, value string) {
	if value != "" && !filepath.IsAbs(value) {
		c.invalid(path, value, "an absolute path")
	}
}

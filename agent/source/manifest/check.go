package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checks collects validation errors.
type checks struct{ errs field.ErrorList }

// maxErrors bounds the reported errors of one pod.
const maxErrors = 50

func (c *checks) add(err *field.Error) {
	if len(c.errs) < maxErrors {
		c.errs = append(c.errs, err)
	}
}

// invalid rejects a value if a condition holds.
func (c *checks) invalid(condition bool, path *field.Path, value any, message string) {
	if condition {
		c.add(field.Invalid(path, value, message))
	}
}

// forbid rejects a field if a condition holds.
func (c *checks) forbid(condition bool, path *field.Path, message string) {
	if condition {
		c.add(field.Forbidden(path, message))
	}
}

// must applies a function of the validation package to a value.
func (c *checks) must(path *field.Path, value string, valid func(string) []string) {
	for _, message := range valid(value) {
		c.add(field.Invalid(path, value, message))
	}
}

// optional applies a function of the validation package to a value that may be
// empty.
func (c *checks) optional(path *field.Path, value string, valid func(string) []string) {
	if value != "" {
		c.must(path, value, valid)
	}
}

// required requires a value, and reports whether there is one.
func (c *checks) required(path *field.Path, value string) bool {
	if value == "" {
		c.add(field.Required(path, ""))
	}
	return value != ""
}

// name requires a value and applies a function of the validation package to it.
func (c *checks) name(path *field.Path, value string, valid func(string) []string) {
	if c.required(path, value) {
		c.must(path, value, valid)
	}
}

// once rejects duplicate values.
func (c *checks) once(path *field.Path, value string, seen map[string]struct{}) {
	if _, ok := seen[value]; ok {
		c.add(field.Duplicate(path, value))
	}
	seen[value] = struct{}{}
}

func (c *checks) notNegative(path *field.Path, value int64) {
	c.invalid(value < 0, path, value, "must not be negative")
}

// address requires an IP address without a zone, which may contain any character,
// and without leading zeros.
func (c *checks) address(path *field.Path, value string) {
	for _, err := range validation.IsValidIPForLegacyField(path, value, true, nil) {
		c.add(err)
	}
}

func (c *checks) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.add(field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive"))
	}
}

// descending requires a relative path without "..".
func (c *checks) descending(path *field.Path, value string) {
	c.invalid(strings.HasPrefix(value, "/"), path, value, "must be a relative path")
	c.noBacksteps(path, value)
}

func (c *checks) noBacksteps(path *field.Path, value string) {
	c.invalid(slices.Contains(strings.Split(value, "/"), ".."), path, value, "must not contain '..'")
	c.noControl(path, value)
}

// noControl rejects control characters, which could end a line or a C string.
func (c *checks) noControl(path *field.Path, value string) {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	c.invalid(strings.ContainsFunc(value, control), path, value, "must not contain control characters")
}

// oneOf requires one of the allowed values.
func oneOf[T ~string](c *checks, path *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) && c.required(path, string(value)) {
		c.add(field.NotSupported(path, value, allowed))
	}
}

// oneOfOptional requires one of the allowed values where there is a value.
func oneOfOptional[T ~string](c *checks, path *field.Path, value *T, allowed ...T) {
	if value != nil {
		oneOf(c, path, *value, allowed...)
	}
}

// IsUID reports whether a UID has at most 63 letters, digits and '-', with a
// letter or digit at both ends. An API server allows any string; here the UID
// becomes a directory name, part of a cgroup name, and a label value.
func IsUID(uid types.UID) bool {
	for i := range len(uid) {
		switch c := uid[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(uid)-1:
		default:
			return false
		}
	}
	return uid != "" && len(uid) <= 63
}

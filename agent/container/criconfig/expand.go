package criconfig

import (
	"strings"
	"unicode/utf8"
)

// expand replaces $(NAME) by the value of the variable. $$ becomes $. A
// reference without an end, or to a name that lookup does not have, stays
// unchanged. Values are not expanded again. (The rules are those of
// third_party/forked/golang/expansion in Kubernetes.)
func expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case rest == "":
			out.WriteByte('$')
			return out.String()
		case rest[0] == '$':
			out.WriteByte('$')
			s = rest[1:]
		case rest[0] == '(':
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				s = rest[1:]
				continue
			}
			if value, ok := lookup(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			s = after
		default:
			// The rune after a lone $ is kept. Invalid UTF-8 becomes U+FFFD, as
			// upstream.
			r, size := utf8.DecodeRuneInString(rest)
			out.WriteByte('$')
			out.WriteRune(r)
			s = rest[size:]
		}
	}
}

// ExpandAll returns the list with the references of each string replaced (see expand).
func ExpandAll(list []string, lookup func(string) (string, bool)) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = expand(s, lookup)
	}
	return out
}

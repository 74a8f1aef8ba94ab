package machine

import (
	"cmp"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxOSImage bounds the distribution's name, in bytes.
const maxOSImage = 256

// osImage returns the distribution's name: PRETTY_NAME of os-release, "Linux" if
// the file has none, and "" without a file (os-release(5), and getOperatingSystem
// in cadvisor's machine/operatingsystem_unix.go).
func osImage(r Roots) string {
	text := cmp.Or(readSmall(filepath.Join(r.root(), "etc/os-release")), readSmall(filepath.Join(r.root(), "usr/lib/os-release")))
	if text == "" {
		return ""
	}
	return cmp.Or(prettyName(text), "Linux")
}

// prettyName returns the first PRETTY_NAME in the text of an os-release file, or ""
// if there is none, or if it is too long or not printable.
func prettyName(text string) string {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME=")
		if !ok {
			continue
		}
		name := strings.TrimSpace(unquote(value))
		if len(name) > maxOSImage || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return ""
		}
		return name
	}
	return ""
}

// unquote removes the quotes of a value, and the backslashes that a shell would
// remove within double quotes.
func unquote(value string) string {
	if len(value) < 2 || value[0] != value[len(value)-1] {
		return value
	}
	switch inner := value[1 : len(value)-1]; value[0] {
	case '\'':
		return inner
	case '"':
		return shellQuoted.Replace(inner)
	}
	return value
}

var shellQuoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")

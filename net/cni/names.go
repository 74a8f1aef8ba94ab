package cni

import (
	"strings"
	"unicode"
)

// maxName is the maximum length of the name of a container or network. A file name that
// contains it together with other names then fits into the 255 bytes of Linux.
const maxName = 200

// isName reports whether a text is a name of a container or network: letters, digits and
// ._-, beginning with a letter or a digit.
func isName(text string) bool {
	const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return text != "" && len(text) <= maxName && strings.Contains(alphanumeric, text[:1]) && strings.Trim(text, alphanumeric+"._-") == ""
}

const nameRule = "write at most 200 letters, digits, dots, underscores and hyphens, beginning with a letter or digit"

// isInterface reports whether the kernel accepts a text as an interface name
// (dev_valid_name in net/core/dev.c). It also rejects control characters, which the kernel
// accepts.
func isInterface(text string) bool {
	if text == "" || len(text) > 15 || text == "." || text == ".." {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || r == ':' || r == unicode.ReplacementChar || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

const interfaceRule = `write 1 to 15 bytes without "/", ":" or spaces`

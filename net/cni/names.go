package cni

import "unicode"

// maxName is the maximum length of the name of a container or network. A file name that
// contains it together with other names then fits into the 255 bytes of Linux.
const maxName = 200

// isName reports whether a text is a name of a container or network: letters, digits and
// ._-, beginning with a letter or a digit.
func isName(text string) bool {
	if text == "" || len(text) > maxName {
		return false
	}
	for i, c := range []byte(text) {
		letter := isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

const nameRule = "write at most 200 letters, digits, dots, underscores and hyphens, beginning with a letter or digit"

// isInterface reports whether the kernel accepts a text as an interface name
// (dev_valid_name in net/core/dev.c). It also rejects control characters, which the kernel
// accepts.
func isInterface(text string) bool {
	if text == "" || len(text) > 15 || text == "." || text == ".." {
		return false
	}
	for _, r := range text {
		if r == '/' || r == ':' || r == unicode.ReplacementChar || unicode.IsSpace(r) || unicode.IsControl(r) {
			return false
		}
	}
	return true
}

const interfaceRule = `write 1 to 15 bytes without "/", ":" or spaces`

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

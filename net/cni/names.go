package cni

import "unicode"

// maxName is the longest name of a container or a network: with the other names
// in it, that of a file still fits into the 255 bytes that Linux has for it.
const maxName = 200

// isName is whether a text names a container or a network: a letter or a digit,
// and any of these and ._- behind it.
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

const nameRule = "write letters, digits, dots, underscores and hyphens, a letter or a digit first, 200 at most"

// isInterface is whether the kernel takes a text for an interface's name
// (dev_valid_name in net/core/dev.c). Control characters it would take.
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

const interfaceRule = `write 1 to 15 bytes without "/", ":" and spaces`

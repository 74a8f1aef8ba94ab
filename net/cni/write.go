package cni

import (
	"net/netip"
	"strconv"
	"unicode/utf8"
)

// appendString appends a JSON string. It replaces invalid UTF-8 by U+FFFD.
func appendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// appendNonZero appends a member if n is not 0. member is the text before the number.
func appendNonZero(dst []byte, member string, n uint32) []byte {
	if n == 0 {
		return dst
	}
	return appendNumber(dst, member, n)
}

func appendNumber(dst []byte, member string, n uint32) []byte {
	return strconv.AppendUint(append(dst, member...), uint64(n), 10)
}

// appendAddress appends a member if the address is valid. member is the text before the
// address, with the opening quote.
func appendAddress(dst []byte, member string, a netip.Addr) []byte {
	if !a.IsValid() {
		return dst
	}
	return append(a.AppendTo(append(dst, member...)), '"')
}

// appendComma appends a comma before each element except the first.
func appendComma(dst []byte, i int) []byte {
	if i == 0 {
		return dst
	}
	return append(dst, ',')
}

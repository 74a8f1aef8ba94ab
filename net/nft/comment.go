package nft

import "golang.org/x/sys/unix"

// Comments stand in user data, which the kernel keeps and does not read: a
// type of one byte, a length of one byte, and the text with a zero byte. The
// nft program has this form, and numbers the type by what is commented.
const (
	commentOfTable   = 0
	commentOfChain   = 0
	commentOfRule    = 0
	commentOfElement = 0
	commentOfSet     = 7
)

// commentLen is the longest text that the nft program shows.
const commentLen = 127

// Attributes that golang.org/x/sys/unix has no names for.
const (
	tableUserdata = 6 // NFTA_TABLE_USERDATA, Linux 5.10; older ones leave it out
	setUserdata   = unix.NFTA_SET_USERDATA
)

// userdata is a comment's user data.
func userdata(kind byte, text string) []byte {
	text = text[:min(len(text), commentLen)]
	return append(append([]byte{kind, byte(len(text) + 1)}, text...), 0)
}

// comment is the text in the user data of a rule or an element.
func comment(data []byte) string {
	for len(data) >= 2 {
		length := 2 + int(data[1])
		if length > len(data) {
			return ""
		}
		if data[0] == commentOfElement {
			text := data[2:length]
			if n := len(text); n > 0 && text[n-1] == 0 {
				text = text[:n-1]
			}
			return string(text)
		}
		data = data[length:]
	}
	return ""
}

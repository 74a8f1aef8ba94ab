package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// decoder decodes the values of a JSON document. It records the first error and continues,
// because DEL uses the fields that can be read.
type decoder struct {
	err error // an *Error
}

// location is the location of a value in a document: the key of an object or the index of
// an array. parent is the location of that object or array, nil for the document.
type location struct {
	parent  *location
	key     string
	inArray bool // index is used instead of key
	index   int
}

func (p *location) String() string {
	switch {
	case p == nil:
		return ""
	case p.inArray:
		return p.parent.String() + "[" + strconv.Itoa(p.index) + "]"
	case p.parent == nil:
		return p.key
	}
	return p.parent.String() + "." + p.key
}

// fail records an error, unless there was one before.
func (d *decoder) fail(at *location, code Code, format string, args ...any) {
	if d.err != nil {
		return
	}
	d.err = configError(code, at.String(), fmt.Sprintf(format, args...))
}

// detailsErr returns the recorded error without its code and message.
func (d *decoder) detailsErr() error {
	if e, ok := errors.AsType[*Error](d.err); ok {
		return errors.New(e.Details)
	}
	return nil
}

// configMessages are the messages of the codes for errors in a network configuration.
var configMessages = [...]string{
	CodeIncompatibleVersion: "the version of the network configuration is not supported",
	CodeUnsupportedField:    "a field of the network configuration is not supported",
	CodeDecodingFailure:     "the network configuration cannot be decoded",
	CodeInvalidConfig:       "the network configuration is not valid",
}

func configError(code Code, where, what string) *Error {
	if where != "" {
		what = where + ": " + what
	}
	return &Error{Code: code, Msg: configMessages[code], Details: what}
}

// typeError records that a value has another type than want.
func (d *decoder) typeError(at *location, value []byte, want string) {
	d.fail(at, CodeDecodingFailure, "%s is not %s: write %s", quoteShort(string(value)), want, map[string]string{
		"a string":  `it in quotes, such as "text"`,
		"a boolean": "true or false",
		"an object": `an object such as {"key": "value"}`,
		"an array":  `an array such as ["first", "second"]`,
	}[want])
}

// document calls each with the members of a document that is one object, up to the first
// syntax error.
func (d *decoder) document(data []byte, each func(at *location, value []byte)) {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \n\t\r"), []byte("{")) {
		d.fail(nil, CodeDecodingFailure, "%s is not an object: is the network configuration on standard input?", quoteShort(string(data)))
		return
	}
	members(nil, data, each)
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		var offset int64
		if syntaxErr, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntaxErr.Offset
		}
		d.fail(nil, CodeDecodingFailure, "byte %d: %v", offset, err)
	}
}

// members calls each with the members of an object in their order, up to the first syntax
// error.
func members(parent *location, object []byte, each func(at *location, value []byte)) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil { // the opening brace
		return
	}
	for dec.More() {
		token, err := dec.Token()
		key, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return
		}
		each(&location{parent: parent, key: key}, value)
	}
}

// object calls each with the members of an object. It skips a member that is null: runtimes
// in Go write null for a field that is not set.
func (d *decoder) object(at *location, value []byte, each func(at *location, value []byte)) {
	if value[0] != '{' {
		d.typeError(at, value, "an object")
		return
	}
	members(at, value, func(at *location, value []byte) {
		if !isNull(value) {
			each(at, value)
		}
	})
}

func isNull(value []byte) bool { return value[0] == 'n' }

// array calls each with at most limit elements of an array. More elements are an error.
func (d *decoder) array(at *location, value []byte, limit int, each func(at *location, value []byte)) {
	var elements []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &elements) != nil {
		d.typeError(at, value, "an array")
		return
	}
	for i, element := range elements[:min(len(elements), limit)] {
		each(&location{parent: at, inArray: true, index: i}, element)
	}
	if len(elements) > limit {
		d.fail(at, CodeInvalidConfig, "has %d elements: write at most %d", len(elements), limit)
	}
}

// elements returns the elements of an array.
func elements[T any](d *decoder, at *location, value []byte, limit int, read func(at *location, value []byte) T) (all []T) {
	d.array(at, value, limit, func(at *location, value []byte) { all = append(all, read(at, value)) })
	return all
}

func (d *decoder) str(at *location, value []byte) string {
	var text string
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		d.typeError(at, value, "a string")
		return ""
	}
	return text
}

// boolean returns the value, or fallback if it is not a boolean.
func (d *decoder) boolean(at *location, value []byte, fallback bool) bool {
	switch value[0] {
	case 't':
		return true
	case 'f':
		return false
	}
	d.typeError(at, value, "a boolean")
	return fallback
}

// number returns an integer from 0 to limit.
func (d *decoder) number(at *location, value []byte, limit uint64) uint64 {
	n, err := strconv.ParseUint(string(value), 10, 64)
	switch {
	case value[0] != '-' && (value[0] < '0' || value[0] > '9'):
		d.fail(at, CodeDecodingFailure, "%s is not a number: write it without quotes", quoteShort(string(value)))
	case err != nil || n > limit:
		d.fail(at, CodeInvalidConfig, "%s is out of range: write an integer from 0 to %d", quoteShort(string(value)), limit)
	default:
		return n
	}
	return 0
}

// address returns an IP address without a zone. It returns an IPv4-mapped address as IPv4.
func (d *decoder) address(at *location, value []byte) netip.Addr {
	return d.parseAddress(at, d.str(at, value))
}

func (d *decoder) parseAddress(at *location, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		d.fail(at, CodeInvalidConfig, `%s is not an IP address: write one such as "10.42.0.7" or "fd00::7"`, quoteShort(text))
		return netip.Addr{}
	}
	return a.Unmap()
}

// prefix returns an address with a prefix length.
func (d *decoder) prefix(at *location, value []byte) netip.Prefix {
	text := d.str(at, value)
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		d.fail(at, CodeInvalidConfig, `%s is not in CIDR notation: write an address with a prefix length, such as "10.42.0.0/24" or "fd00::/64"`, quoteShort(text))
		return netip.Prefix{}
	}
	return p
}

// subnet returns a prefix without host bits.
func (d *decoder) subnet(at *location, value []byte) netip.Prefix {
	p := d.prefix(at, value)
	if p != p.Masked() {
		d.fail(at, CodeInvalidConfig, `%s has host bits: write the network, "%v"`, quoteShort(p.String()), p.Masked())
		return netip.Prefix{}
	}
	return p
}

// mac returns a unicast Ethernet address.
func (d *decoder) mac(at *location, text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || [6]byte(mac) == [6]byte{} {
		d.fail(at, CodeInvalidConfig, `%s is not a unicast MAC address: write six bytes, the first one even, such as "0a:58:0a:2a:00:07"`, quoteShort(text))
		return nil
	}
	return mac
}

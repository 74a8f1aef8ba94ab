package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// decoder reads the values of a document. It keeps the first fault and goes on,
// since a container is taken down by what can be read.
type decoder struct {
	err *Error
}

// location is where a value stands: a key of the object, or an element of the list,
// at the place above it, which is nil for the document's own keys.
type location struct {
	parent *location
	key    []byte // nil in a list
	index  int
}

func (p *location) String() string {
	switch {
	case p == nil:
		return ""
	case p.key == nil:
		return p.parent.String() + "[" + strconv.Itoa(p.index) + "]"
	case p.parent == nil:
		return string(p.key)
	}
	return p.parent.String() + "." + string(p.key)
}

// fail keeps a fault, unless there was one.
func (d *decoder) fail(at *location, code Code, format string, args ...any) {
	if d.err != nil {
		return
	}
	d.err = configError(code, at.String(), fmt.Sprintf(format, args...))
}

// detailsErr is the fault as an error, without the kind.
func (d *decoder) detailsErr() error {
	if d.err == nil {
		return nil
	}
	return errors.New(d.err.Details)
}

// configMessages are those of the codes that a configuration can be wrong with.
var configMessages = [...]string{
	CodeIncompatibleVersion: "the version of the network configuration is not supported",
	CodeUnsupportedField:    "a field of the network configuration is not supported",
	CodeDecodingFailure:     "the network configuration cannot be read",
	CodeInvalidConfig:       "the network configuration is not valid",
}

func configError(code Code, where, what string) *Error {
	if where != "" {
		what = where + ": " + what
	}
	return &Error{Code: code, Msg: configMessages[code], Details: what}
}

// typeError is the fault of a value of another type than the wanted one.
func (d *decoder) typeError(at *location, value []byte, want string) {
	d.fail(at, CodeDecodingFailure, "%s is no %s: write %s", quoteShort(string(value)), want, map[string]string{
		"text":    `it in quotes, like "text"`,
		"boolean": "true or false",
		"object":  `an object, like {"key": "value"}`,
		"list":    `a list, like ["first", "second"]`,
	}[want])
}

// document goes through the members of a document that is one object. Those
// before a fault in its form are read.
func (d *decoder) document(data []byte, each func(at *location, value []byte)) {
	i := skipSpace(data, 0)
	if !hasByte(data, i, '{') {
		d.fail(nil, CodeDecodingFailure, "%s is no object: is the configuration on standard input?", quoteShort(string(data)))
		return
	}
	end, err := d.scanObject(nil, data, i, each)
	if end = skipSpace(data, end); err == nil && end < len(data) {
		err = &syntaxError{end, "more follows where the configuration has ended"}
	}
	if err != nil {
		d.fail(nil, CodeDecodingFailure, "%v", err)
	}
}

func (d *decoder) scanObject(up *location, b []byte, i int, each func(at *location, value []byte)) (int, error) {
	at := &location{parent: up}
	return scanObject(b, i, maxDepth, func(key, value []byte) {
		at.key = unquote(key)
		each(at, value)
	})
}

// object goes through an object's members. One that is null is not there: so
// Go's runtimes write what they have not set.
func (d *decoder) object(at *location, value []byte, each func(at *location, value []byte)) {
	if value[0] != '{' {
		d.typeError(at, value, "object")
		return
	}
	_, _ = d.scanObject(at, value, 0, func(at *location, value []byte) { // its form was seen to
		if !isNull(value) {
			each(at, value)
		}
	})
}

func isNull(value []byte) bool { return value[0] == 'n' }

// array goes through a list of so many elements at most.
func (d *decoder) array(at *location, value []byte, most int, each func(at *location, value []byte)) {
	if value[0] != '[' {
		d.typeError(at, value, "list")
		return
	}
	element := &location{parent: at, index: -1}
	_, _ = scanArray(value, 0, maxDepth, func(value []byte) {
		if element.index++; element.index < most {
			each(element, value)
		}
	})
	if element.index >= most {
		d.fail(at, CodeInvalidConfig, "%d are too many: at most %d are taken", element.index+1, most)
	}
}

func (d *decoder) str(at *location, value []byte) string {
	if value[0] != '"' {
		d.typeError(at, value, "text")
		return ""
	}
	return string(unquote(value))
}

// boolean gives the value, or what it was where it is none.
func (d *decoder) boolean(at *location, value []byte, was bool) bool {
	switch value[0] {
	case 't':
		return true
	case 'f':
		return false
	}
	d.typeError(at, value, "boolean")
	return was
}

// number is a whole number from 0 to most.
func (d *decoder) number(at *location, value []byte, most uint64) uint64 {
	n, err := strconv.ParseUint(string(value), 10, 64)
	switch {
	case value[0] != '-' && !isDigit(value[0]):
		d.fail(at, CodeDecodingFailure, "%s is no number: write one without quotes", quoteShort(string(value)))
	case err != nil || n > most:
		d.fail(at, CodeInvalidConfig, "%s is out of range: write a whole number from 0 to %d", quoteShort(string(value)), most)
	default:
		return n
	}
	return 0
}

// address is an IP address without a zone. IPv4 in IPv6 is IPv4.
func (d *decoder) address(at *location, value []byte) netip.Addr {
	return d.parseAddress(at, d.str(at, value))
}

func (d *decoder) parseAddress(at *location, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		d.fail(at, CodeInvalidConfig, `%s is no IP address: write one like "10.42.0.7" or "fd00::7"`, quoteShort(text))
		return netip.Addr{}
	}
	return a.Unmap()
}

// prefix is an address with the length of its network.
func (d *decoder) prefix(at *location, value []byte) netip.Prefix {
	text := d.str(at, value)
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		d.fail(at, CodeInvalidConfig, `%s is no network: write an address and the length of its prefix, like "10.42.0.0/24" or "fd00::/64"`, quoteShort(text))
		return netip.Prefix{}
	}
	return p
}

// subnet is a network's own address.
func (d *decoder) subnet(at *location, value []byte) netip.Prefix {
	p := d.prefix(at, value)
	if p != p.Masked() {
		d.fail(at, CodeInvalidConfig, `%s is an address in a network: write the network, "%v"`, quoteShort(p.String()), p.Masked())
		return netip.Prefix{}
	}
	return p
}

// mac is the MAC address of one interface.
func (d *decoder) mac(at *location, text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || [6]byte(mac) == [6]byte{} {
		d.fail(at, CodeInvalidConfig, `%s is no MAC address of an interface: write six bytes, the first of them even, like "0a:58:0a:2a:00:07"`, quoteShort(text))
		return nil
	}
	return mac
}

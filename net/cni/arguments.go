package cni

import (
	"fmt"
	"net/netip"
	"strings"
)

const maxArgument = 253 // bytes: the longest name that Kubernetes gives

// readArguments reads pairs like "A=1;B=2". Names that are not known are refused
// unless IgnoreUnknown is true, wherever it stands. It reads on past the first
// error, which it returns.
func readArguments(text string) (a arguments, err error) {
	unknown, ignore := "", false
	for pair := range strings.SplitSeq(text, ";") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		known := true
		var fault error
		switch {
		case !ok:
			fault = fmt.Errorf("%s has no value: write NAME=VALUE, with semicolons between", quoteShort(pair))
		case name == "IgnoreUnknown":
			ignore, fault = parseBool(value)
		default:
			known, fault = a.set(name, value)
		}
		if !known && unknown == "" {
			unknown = name
		}
		if err == nil {
			err = fault
		}
	}
	if err == nil && unknown != "" && !ignore {
		err = fmt.Errorf("%s is not known: leave it out, or add IgnoreUnknown=1", quoteShort(unknown))
	}
	return a, err
}

func parseBool(value string) (bool, error) {
	switch {
	case isTrue(value):
		return true, nil
	case value == "0" || strings.EqualFold(value, "false"):
		return false, nil
	}
	return false, fmt.Errorf("IgnoreUnknown is %s: write 1 or 0", quoteShort(value))
}

// set takes one argument, if it is known.
func (a *arguments) set(name, value string) (known bool, err error) {
	switch name {
	case "K8S_POD_NAMESPACE":
		err = setName(&a.pod.Namespace, name, value)
	case "K8S_POD_NAME":
		err = setName(&a.pod.Name, name, value)
	case "K8S_POD_UID":
		err = setName(&a.pod.UID, name, value)
	case "K8S_POD_INFRA_CONTAINER_ID":
	case "IP":
		d := &decoder{}
		if ip := d.containerAddress(&location{key: []byte(name)}, value); ip.IsValid() {
			a.ips = []netip.Addr{ip}
		}
		err = d.detailsErr()
	case "MAC":
		d := &decoder{}
		a.mac = d.mac(&location{key: []byte(name)}, value)
		err = d.detailsErr()
	default:
		return false, nil
	}
	return true, err
}

// setName takes a name that people read: printable ASCII, and no path.
func setName(into *string, name, value string) error {
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '/' {
			return fmt.Errorf("%s is %s: write letters, digits, dots and hyphens", name, quoteShort(value))
		}
	}
	if len(value) > maxArgument {
		return fmt.Errorf("%s has %d bytes: write %d at most", name, len(value), maxArgument)
	}
	*into = value
	return nil
}

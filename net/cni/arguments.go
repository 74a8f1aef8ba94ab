package cni

import (
	"fmt"
	"net/netip"
	"strings"
)

const maxArgument = 253 // bytes: the maximum length of a Kubernetes name

// readArguments parses CNI_ARGS, such as "A=1;B=2". Unknown names are an error unless
// IgnoreUnknown is true, at any position. It continues after the first error and returns
// that one.
func readArguments(text string) (a arguments, err error) {
	unknown, ignore := "", false
	for pair := range strings.SplitSeq(text, ";") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		known := true
		var argErr error
		switch {
		case !ok:
			argErr = fmt.Errorf("%s has no value: write NAME=VALUE, separated by semicolons", quoteShort(pair))
		case name == "IgnoreUnknown":
			ignore, argErr = parseBool(value)
		default:
			known, argErr = a.set(name, value)
		}
		if !known && unknown == "" {
			unknown = name
		}
		if err == nil {
			err = argErr
		}
	}
	if err == nil && unknown != "" && !ignore {
		err = fmt.Errorf("%s is unknown: remove it, or add IgnoreUnknown=1", quoteShort(unknown))
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

// set sets one argument. known is false for a name that the plugin does not have.
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
		if ip := d.containerAddress(&location{key: name}, value); ip.IsValid() {
			a.ips = []netip.Addr{ip}
		}
		err = d.detailsErr()
	case "MAC":
		d := &decoder{}
		a.mac = d.mac(&location{key: name}, value)
		err = d.detailsErr()
	default:
		return false, nil
	}
	return true, err
}

// setName sets *into to a name or UID of the pod, which must be printable ASCII without
// spaces and slashes.
func setName(into *string, name, value string) error {
	if strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
		return fmt.Errorf("%s is %s: write letters, digits, dots and hyphens", name, quoteShort(value))
	}
	if len(value) > maxArgument {
		return fmt.Errorf("%s has %d bytes: write at most %d", name, len(value), maxArgument)
	}
	*into = value
	return nil
}

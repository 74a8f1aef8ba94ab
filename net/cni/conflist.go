package cni

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/net/ipam"
)

// ErrForeign means that a configuration list is valid JSON but not one of Conflist: it does
// not consist of exactly one plugin of type tinylet-cni.
var ErrForeign = errors.New("configuration list does not consist of tinylet-cni alone")

// capabilities are the capabilities for which the runtime passes arguments in
// runtimeConfig.
const capabilities = `"capabilities": {"bandwidth": true, "ips": true, "mac": true, "portMappings": true}`

// Conflist returns a configuration list of version DefaultVersion for the runtime's
// configuration directory (/etc/cni/net.d). Its only network is c with the name. The output
// for the same configuration is identical.
func Conflist(c Config, name string) ([]byte, error) {
	out := fmt.Appendf(nil, "{\n  \"cniVersion\": %s,\n  \"name\": %s,\n  \"plugins\": [\n    {\n      %s\n    }\n  ]\n}\n",
		inline(DefaultVersion), inline(name), strings.Join(c.fields(), ",\n      "))
	if _, err := ParseConflist(out); err != nil { // it validates c
		return nil, err
	}
	return out, nil
}

// fields returns the plugin's own fields. It omits the MTU and the gateways if they are not
// set, because the network's defaults for them may change.
func (c *Config) fields() []string {
	fields := []string{`"type": ` + inline(Type), `"bridge": ` + inline(c.Bridge)}
	add := func(key, value string) { fields = append(fields, `"`+key+`": `+value) }
	if c.MTU != 0 {
		add("mtu", inline(c.MTU))
	}
	if c.Refuse != "" {
		add("refuse", inline(c.Refuse))
	}
	add("ranges", array(c.Ranges, inlineRange))
	if len(c.Kept) > 0 {
		add("kept", array(c.Kept, inlineRange))
	}
	add("direct", array(c.Direct, inline))
	if len(c.Reserved) > 0 {
		add("reserved", array(c.Reserved, inline))
	}
	add("masquerade", inline(c.Masquerade))
	add("hairpin", inline(c.Hairpin))
	add("promiscuous", inline(c.Promiscuous))
	add("stateDir", inline(c.StateDir))
	return append(fields, capabilities)
}

// inline returns v as JSON on one line.
func inline[T any](v T) string { return string(bytes.TrimSpace(encode(v))) }

func inlineRange(r ipam.Range) string {
	text := `{"subnet": ` + inline(r.Prefix)
	if r.Gateway.IsValid() {
		text += `, "gateway": ` + inline(r.Gateway)
	}
	return text + "}"
}

// array returns a JSON array on one line.
func array[T any](all []T, item func(T) string) string {
	items := make([]string, len(all))
	for i, v := range all {
		items[i] = item(v)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// ParseConflist parses a list of Conflist, or one that a user has written. It returns the
// configuration that the plugin will receive, in the newest version that the list has. The
// error is an *Error, or wraps ErrForeign.
func ParseConflist(data []byte) (Config, error) {
	d := &decoder{}
	c := Default()
	var plugins [][]byte
	d.document(data, func(at *location, value []byte) {
		switch key := at.key; {
		case isNull(value):
		case key == "plugins":
			plugins = nil
			d.array(at, value, maxPlugins, func(_ *location, value []byte) { plugins = append(plugins, value) })
		case key == "cniVersions":
			d.array(at, value, maxPlugins, func(at *location, value []byte) { c.raiseVersion(d.str(at, value)) })
		case key == "cniVersion":
			c.raiseVersion(d.str(at, value))
		case key == "name" || key == "disableCheck":
			c.readField(d, at, value)
		}
	})
	if d.err != nil {
		return c, d.err
	}
	if len(plugins) != 1 || !c.readPlugin(d, plugins[0]) {
		return c, ErrForeign // also if it has other errors
	}
	if err := checkVersion(add, c.CNIVersion); err != nil && d.err == nil {
		d.err = err
	}
	c.checkRequired(d, add)
	return c, d.err
}

const maxPlugins = 32

// raiseVersion sets CNIVersion if version is newer.
func (c *Config) raiseVersion(version string) {
	current, known := parseVersion(c.CNIVersion)
	if v, ok := parseVersion(version); !known || ok && v > current {
		c.CNIVersion = version
	}
}

// readPlugin reads the fields of a plugin, and reports whether its type is tinylet-cni.
func (c *Config) readPlugin(d *decoder, value []byte) bool {
	c.Type = ""
	at := &location{parent: &location{key: "plugins"}, inArray: true}
	d.object(at, value, func(at *location, value []byte) {
		switch at.key {
		case "name", "cniVersion", "disableCheck": // those of the list take precedence
		default:
			c.readField(d, at, value)
		}
	})
	return c.Type == Type
}

package cni

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrForeign means that a configuration list is valid JSON but not one of Conflist: it does
// not consist of exactly one plugin of type tinylet-cni.
var ErrForeign = errors.New("configuration list does not consist of tinylet-cni alone")

// capabilities are the capabilities for which the runtime passes arguments in
// runtimeConfig.
const capabilities = `"capabilities": {"bandwidth": true, "ips": true, "mac": true, "portMappings": true}`

// Conflist returns a configuration list for the runtime's configuration directory
// (/etc/cni/net.d). Its only network is c with the name. The output for the same
// configuration is identical.
//
// version is the newest version of CNI by which the runtime calls the plugin; "" is
// DefaultVersion. With 1.1.0 and later, containerd calls STATUS, which starts a process,
// each time that its own status is requested. A list of version 1.1.0 also has
// DefaultVersion in cniVersions, for runtimes without 1.1.0.
func Conflist(c Config, name string, version string) ([]byte, error) {
	if version == "" {
		version = DefaultVersion
	}
	out := append([]byte("{\n"), `  "cniVersion": `...)
	if version == NewestVersion {
		out = append(out, `"`+DefaultVersion+"\",\n  \"cniVersions\": [\""+DefaultVersion+`", "`+NewestVersion+`"]`...)
	} else {
		out = appendString(out, version)
	}
	out = append(out, ",\n  \"name\": "...)
	out = appendString(out, name)
	if c.DisableCheck {
		out = append(out, ",\n  \"disableCheck\": true"...)
	}
	out = append(out, ",\n  \"plugins\": [\n    {\n      \"type\": \""+Type+"\",\n"...)
	out = c.appendFields(out)
	out = append(out, "      "+capabilities+"\n    }\n  ]\n}\n"...)
	if _, err := ParseConflist(out); err != nil { // it validates c
		return nil, err
	}
	return out, nil
}

// appendFields appends the plugin's own fields, each on one line. It omits the MTU and the
// gateways if they are not set, because the network's defaults for them may change.
func (c *Config) appendFields(out []byte) []byte {
	out = append(out, `      "bridge": `...)
	out = appendString(out, c.Bridge)
	if c.MTU != 0 {
		out = append(out, ",\n      \"mtu\": "...)
		out = strconv.AppendInt(out, int64(c.MTU), 10)
	}
	if c.Refuse != "" {
		out = append(out, ",\n      \"refuse\": "...)
		out = appendString(out, c.Refuse)
	}
	out = appendRanges(append(out, ",\n      \"ranges\": ["...), c.Ranges)
	if len(c.Kept) > 0 {
		out = appendRanges(append(out, "],\n      \"kept\": ["...), c.Kept)
	}
	out = append(out, "],\n      \"direct\": ["...)
	for i, p := range c.Direct {
		out = append(p.AppendTo(append(appendSeparator(out, i), '"')), '"')
	}
	out = append(out, "],\n"...)
	if len(c.Reserved) > 0 {
		out = append(out, `      "reserved": [`...)
		for i, port := range c.Reserved {
			out = strconv.AppendUint(appendSeparator(out, i), uint64(port), 10)
		}
		out = append(out, "],\n"...)
	}
	out = appendBool(out, "masquerade", c.Masquerade)
	out = appendBool(out, "hairpin", c.Hairpin)
	out = appendBool(out, "promiscuous", c.Promiscuous)
	out = append(out, `      "stateDir": `...)
	return append(appendString(out, c.StateDir), ",\n"...)
}

func appendRanges(out []byte, ranges []Range) []byte {
	for i, r := range ranges {
		out = append(appendSeparator(out, i), `{"subnet": "`...)
		out = append(r.Subnet.AppendTo(out), '"')
		if r.Gateway.IsValid() {
			out = append(r.Gateway.AppendTo(append(out, `, "gateway": "`...)), '"')
		}
		out = append(out, '}')
	}
	return out
}

func appendSeparator(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ", "...)
}

// appendString appends a JSON string.
func appendString(out []byte, text string) []byte {
	return append(out, bytes.TrimSpace(encode(text))...)
}

func appendBool(out []byte, key string, value bool) []byte {
	out = append(out, `      "`+key+`": `...)
	return append(strconv.AppendBool(out, value), ",\n"...)
}

// ParseConflist parses a list of Conflist. It returns the configuration that the plugin
// will receive, in the newest version that the list has. The error is an *Error, or wraps
// ErrForeign.
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
	if d.err != nil {
		return c, d.err
	}
	return c, nil
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

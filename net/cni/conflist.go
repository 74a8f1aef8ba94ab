package cni

import (
	"errors"
	"strconv"
)

// ErrForeign says that a configuration list is not one that Conflist writes, but
// somebody else's: sound, but of other plugins, or of several.
var ErrForeign = errors.New("the configuration list is not of tinylet-cni alone")

// capabilities are what a runtime may hand over in runtimeConfig.
const capabilities = `"capabilities": {"bandwidth": true, "ips": true, "mac": true, "portMappings": true}`

// Conflist writes a configuration list for a runtime's folder (/etc/cni/net.d),
// with c under the name. The bytes are the same for the same configuration.
//
// The version is the newest to be called in, "" for DefaultVersion. From 1.1.0
// on containerd has STATUS called, a process each time, as often as it is asked
// for its own status. A list in 1.1.0 says that it may be read in
// DefaultVersion as well, for runtimes that do not know it.
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
	if _, err := ParseConflist(out); err != nil { // it says what is wrong with c
		return nil, err
	}
	return out, nil
}

// appendFields writes the plugin's own fields, a line each. The network's
// defaults are left out where they may change: the MTU and the gateway.
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
		out = append(appendAddress(out, `, "gateway": "`, r.Gateway), '}')
	}
	return out
}

func appendSeparator(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ", "...)
}

func appendBool(out []byte, key string, is bool) []byte {
	out = append(out, `      "`+key+`": `...)
	return append(strconv.AppendBool(out, is), ",\n"...)
}

// ParseConflist reads a list as Conflist writes it, and gives the configuration
// as the plugin will be handed it, in the newest version that the list has. The
// error is an *Error, or wraps ErrForeign where the list is somebody else's.
func ParseConflist(data []byte) (Config, error) {
	d := &decoder{}
	c := Default()
	var plugins [][]byte
	d.document(data, func(at *location, value []byte) {
		switch key := string(at.key); {
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
		return c, ErrForeign // whatever else may be wrong with it
	}
	if fault := checkVersion(add, c.CNIVersion); fault != nil && d.err == nil {
		d.err = fault
	}
	c.checkRequired(d, add)
	if d.err != nil {
		return c, d.err
	}
	return c, nil
}

const maxPlugins = 32

// raiseVersion takes a version if it is newer than the one that there is.
func (c *Config) raiseVersion(version string) {
	was, known := parseVersion(c.CNIVersion)
	if is, ok := parseVersion(version); !known || ok && is > was {
		c.CNIVersion = version
	}
}

// readPlugin reads the plugin's fields, if it is ours.
func (c *Config) readPlugin(d *decoder, value []byte) bool {
	c.Type = ""
	at := &location{parent: &location{key: []byte("plugins")}}
	d.object(at, value, func(at *location, value []byte) {
		switch string(at.key) {
		case "name", "cniVersion", "disableCheck": // those of the list hold
		default:
			c.readField(d, at, value)
		}
	})
	return c.Type == Type
}

package pod

import "strings"

// SysctlName returns a sysctl's name with dots as separators and with slashes in
// place of the dots within a part, as in sysctl.d(5):
// net/ipv4/conf/eno2.100/rp_filter is net.ipv4.conf.eno2/100.rp_filter. The first
// dot or slash in a name is its separator.
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

package pod

import "strings"

// SysctlName is a sysctl's name with dots between its parts and slashes for
// the dots in them, as sysctl.d(5) reads it: net/ipv4/conf/eno2.100/rp_filter
// is net.ipv4.conf.eno2/100.rp_filter. What comes first tells which way a
// name is written.
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

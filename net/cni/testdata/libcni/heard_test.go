package libcni

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// heard writes down what libcni has read of a result, in the type of its
// version.
func heard(t *testing.T, r types.Result) (lines []string) {
	t.Helper()
	switch r := r.(type) {
	case *types040.Result:
		for _, i := range r.Interfaces {
			lines = append(lines, fmt.Sprintf("interface %s %s in %s", i.Name, i.Mac, i.Sandbox))
		}
		for _, ip := range r.IPs {
			lines = append(lines, fmt.Sprintf("ip %v by %v on %d version %s", &ip.Address, ip.Gateway, *ip.Interface, ip.Version))
		}
		return append(lines, routes(r.Routes)...)
	case *types100.Result:
		for _, i := range r.Interfaces {
			mtu := ""
			if i.Mtu != 0 {
				mtu = fmt.Sprintf(" mtu %d", i.Mtu)
			}
			lines = append(lines, fmt.Sprintf("interface %s %s%s in %s", i.Name, i.Mac, mtu, i.Sandbox))
		}
		for _, ip := range r.IPs {
			lines = append(lines, fmt.Sprintf("ip %v by %v on %d", &ip.Address, ip.Gateway, *ip.Interface))
		}
		return append(lines, routes(r.Routes)...)
	}
	t.Fatalf("libcni reads the result as %T", r)
	return nil
}

func routes(routes []*types.Route) (lines []string) {
	for _, r := range routes {
		line := fmt.Sprintf("route %v by %v", &r.Dst, r.GW)
		if r.MTU != 0 {
			line += fmt.Sprintf(" mtu %d advmss %d priority %d table %d scope %d", r.MTU, r.AdvMSS, r.Priority, *r.Table, *r.Scope)
		}
		lines = append(lines, line)
	}
	return lines
}

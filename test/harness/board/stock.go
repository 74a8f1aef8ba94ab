package board

import (
	"fmt"
	"slices"
	"strings"
)

// Stock names a container runtime in its own configuration, in place of the
// product's overlay: what a board has whose owner installed tinylet beside a
// runtime that was there.
type Stock string

// The stock runtimes. Debian's board has systemd as process 1 and Debian's
// packages of containerd and runc as they come; the others have BusyBox's init,
// Debian's runc, and containerd of that branch without any configuration file.
const (
	NotStock    Stock = ""
	StockDebian Stock = "debian"
	Stock20     Stock = "2.0"
	Stock23     Stock = "2.3"
	Stock24     Stock = "2.4"
)

// stockBoard is what is particular to a stock runtime.
type stockBoard struct {
	containerd string // version of the module; "" for the distribution's package
	sandbox    string // the image of sandboxes, as the runtime names it by default
}

var stockBoards = map[Stock]stockBoard{
	NotStock:    {containerd: "v2.4.2", sandbox: PauseImage},
	StockDebian: {sandbox: "registry.k8s.io/pause:3.8"},
	Stock20:     {containerd: "v2.0.11", sandbox: "registry.k8s.io/pause:3.10"},
	Stock23:     {containerd: "v2.3.5", sandbox: "registry.k8s.io/pause:3.10.2"},
	Stock24:     {containerd: "v2.4.2", sandbox: "registry.k8s.io/pause:3.10.2"},
}

// StockNames lists the stock runtimes.
func StockNames() []string { return []string{"debian", "2.0", "2.3", "2.4"} }

// SandboxImage is the image of sandboxes that the runtime asks for by default.
func (s Stock) SandboxImage() string { return stockBoards[s].sandbox }

// packages are those that a board with the runtime has beside the others.
func (s Stock) packages() []string {
	switch s {
	case StockDebian:
		return []string{"containerd", "runc"}
	case Stock20, Stock23, Stock24:
		return []string{"runc"}
	case NotStock:
	}
	return nil
}

// omitted are the files of the overlays that a board with a stock runtime does
// not have: nothing of the product's but its programs, unit and init scripts.
var omitted = []string{
	"etc/containerd/config.toml",
	"etc/sysctl.d/90-tinylet.conf",
}

// leaveOut reports whether the board does not get a file of an overlay.
func (s Stock) leaveOut(name string) bool {
	if s == NotStock {
		return false
	}
	return slices.Contains(omitted, name) || s == StockDebian && name == "usr/lib/systemd/system/containerd.service"
}

// finish has the init script start containerd without a configuration file.
func (s Stock) finish(t *tree) error {
	if s == NotStock || s == StockDebian {
		return nil
	}
	return t.file("etc/default/containerd", 0o644, strings.NewReader("CONTAINERD_ARGS=\"--log-level warn\"\n"))
}

// check reports which runtime there is no board with.
func (o Options) checkStock() error {
	if _, ok := stockBoards[o.Stock]; !ok {
		return fmt.Errorf("stock runtime %q is unknown: want one of %s", o.Stock, strings.Join(StockNames(), ", "))
	}
	if (o.Stock == StockDebian) != o.Systemd && o.Stock != NotStock {
		return fmt.Errorf("the stock runtime %q is on a board with systemd alone, and the others on boards without", StockDebian)
	}
	if o.Dpkg && o.Stock != StockDebian {
		return fmt.Errorf("a board with dpkg has the stock runtime %q", StockDebian)
	}
	if o.Stock != NotStock && !o.Dpkg && o.Arch != ARM64 {
		return fmt.Errorf("board %s with a stock runtime is not made: %s is the only one", o.Arch, ARM64)
	}
	return nil
}

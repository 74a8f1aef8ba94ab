package bench

import (
	"fmt"
	"strings"
	"time"
)

// machine is what all boards are.
const machine = "QEMU virt, cortex-a72, 2 CPUs, 512 MB, software emulation"

// busyLoad is how many processors at work are other work.
const busyLoad = 0.5

// conditions are what a run's values were measured under.
type conditions struct {
	date                        time.Time
	kernel, containerd, runtime string
	kubelet, tinylet            string        // versions, from their Nodes
	settle, settlePods          time.Duration // rest before a window
	idleWindow, shortWindow     time.Duration
	rounds                      int     // of one pod
	load                        float64 // processors of the machine at work before the first board
}

// report is the file that make bench writes.
func report(c conditions, r results) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("# What a node costs: the kubelet and tinylet on the same board\n")
	say("Written by `make bench` on %s. One run: one control plane, and for each agent in turn a fresh board of the same image that joins it with the same bootstrap token, kubelet configuration and init script.\n", c.date.Format(time.DateOnly))
	if c.load > busyLoad {
		say("**The machine had other work (%.1f of its processors before the first board): do not use these figures.**\n", c.load)
	}
	say("- Board: %s; Linux %s.", machine, c.kernel)
	say("- %s with %s and the configuration of the board's image (`buildroot/board/common/rootfs-overlay/etc/containerd/config.toml`), which turns off containerd's statistics of each second. The pod network is tinylet's own in its column, and that of the upstream CNI plugins bridge, host-local, portmap and loopback in the others.", c.containerd, c.runtime)
	say("- Agents: kubelet %s, built from its module; tinylet %s.", c.kubelet, c.tinylet)
	say("- An emulated core is much slower than a real one, and so are all times and CPU figures: what they tell is the ratio.\n")
	b.WriteString(r.table())
	say("\nA value in bold is over its budget. MB are 10^6 bytes.\n")
	say("- Idle figures are of %v without pods after %v of rest, and of %v with ten pods after %v of rest. Memory is the median of three readings. The shorter window says nothing of the wire: the status of a node is sent each five minutes.", c.idleWindow, c.settle, c.shortWindow, c.settlePods)
	say("- CPU is from `/proc/PID/stat`; the whole node is the time that its processors were not idle. Other processes are init, supervisors and what carries the measuring.")
	say("- A pod is one BusyBox container that does nothing and ends at once on TERM, with a service account token as every pod has. Times are taken on the host, from before the request until a watch at the API tells. One pod: median of %d; ten pods: all requests at once.", c.rounds)
	say("- Wire: all that passes the board's network card, all headers included. Flash: sectors written to the disk, after a sync.")
	say("- kubelet, containerd's defaults: the same with a configuration of containerd that has nothing but crun, the pause image and the folder of the CNI plugins; idle without pods for %v.", c.shortWindow)
	say("- Runtime alone: the same containers, started and stopped through CRI by a client that does nothing else, on a board without an agent: the floor for every agent that uses this runtime. Its stop ends with the stop of the sandbox.")
	return b.String()
}

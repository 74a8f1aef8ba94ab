package stats

import (
	"bytes"
	"strconv"
)

// AppendInterfaces parses the content of /proc/PID/net/dev
// (net/core/net-procfs.c of Linux) and appends all interfaces except the
// loopback. It skips lines that cannot be parsed or lack a name or a number.
func AppendInterfaces(dev []byte, to []Interface) []Interface {
	for line := range bytes.Lines(dev) {
		name, counters, ok := bytes.Cut(line, []byte{':'})
		name = bytes.TrimSpace(name)
		if !ok || len(name) == 0 || string(name) == "lo" {
			continue // the two lines of the header have no colon
		}
		var n [12]uint64
		fields := 0
		for field := range bytes.FieldsSeq(counters) {
			if fields == len(n) {
				break
			}
			value, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				break
			}
			n[fields] = value
			fields++
		}
		if fields < len(n) {
			continue
		}
		to = append(to, Interface{
			Name: string(name),
			Rx:   Traffic{Bytes: n[0], Packets: n[1], Errors: n[2], Dropped: n[3]},
			Tx:   Traffic{Bytes: n[8], Packets: n[9], Errors: n[10], Dropped: n[11]},
		})
	}
	return to
}

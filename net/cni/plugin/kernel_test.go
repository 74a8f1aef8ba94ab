package plugin

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

// TestKernelWithoutNFTables calls the plugin on a kernel without nf_tables, before and after
// a container was set up. ADD reports what is missing and leaves nothing. DEL and GC
// succeed.
func TestKernelWithoutNFTables(t *testing.T) {
	n := newNode(t)
	config := n.config("1.1.0", killedPorts)
	call := func(verb string, c *container) (a answer) {
		t.Helper()
		env := map[string]string{}
		if c != nil {
			env = c.environment()
		}
		env["CNI_COMMAND"], env["CNI_PATH"] = verb, "/opt/cni/bin"
		var out bytes.Buffer
		if err := n.on(func() error {
			if err := nstest.LackNetfilter(); err != nil {
				return err
			}
			Run(func(name string) string { return env[name] }, strings.NewReader(config), &out, io.Discard)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 0 {
			if err := json.Unmarshal(out.Bytes(), &a); err != nil {
				t.Fatalf("%s answers %q: %v", verb, &out, err)
			}
		}
		a.text = out.String()
		return a
	}
	for _, verb := range []string{"ADD", "STATUS"} {
		var c *container
		if verb == "ADD" {
			c = n.newContainer()
		}
		a := call(verb, c)
		if text := a.Msg + a.Details; a.Code == 0 || !strings.Contains(text, "the kernel has no nf_tables: load it (modprobe -a nf_tables) or use a kernel that has it") {
			t.Errorf("%s answers %s", verb, a.text)
		}
	}
	if left := n.left(); left != "" {
		t.Errorf("a failed ADD leaves\n%s", left)
	}
	one, other := n.newContainer(), n.newContainer()
	n.must("ADD", one, config)
	n.must("ADD", other, n.config("1.1.0", otherPorts))
	if a := call("DEL", one); a.Code != 0 {
		t.Errorf("DEL answers %s", a.text)
	}
	config = n.config("1.1.0", noneValid)
	if a := call("GC", nil); a.Code != 0 {
		t.Errorf("GC answers %s", a.text)
	}
	// Only this process can still read the rules, which do exist.
	if left := n.left(); strings.Contains(left, "lease") || strings.Contains(left, "link") {
		t.Errorf("left is\n%s", left)
	}
}

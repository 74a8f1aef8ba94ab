package plugin

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
)

// loopbackConfig returns the configuration with which containerd's go-cni calls the plugin.
func loopbackConfig(version string, more ...string) string {
	return "{" + strings.Join(append([]string{`"cniVersion":"` + version + `","name":"cni-loopback","type":"loopback"`}, more...), ",") + "}"
}

func (n *node) callLoopback(verb string, c *container, config string) (a answer) {
	n.Helper()
	env := c.environment()
	env["CNI_COMMAND"], env["CNI_IFNAME"] = verb, "lo"
	var out, errs bytes.Buffer
	exit := 0
	if err := n.on(func() error {
		exit = RunLoopback(func(name string) string { return env[name] }, strings.NewReader(config), &out, &errs)
		return nil
	}); err != nil {
		n.Fatal(err)
	}
	if a.text = out.String(); a.text != "" {
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			n.Fatalf("%s answers %s: %v", verb, a.text, err)
		}
	}
	if (exit != 0) != (a.Code != 0) || errs.Len() > 0 {
		n.Errorf("%s exits with %d, says %s and writes %q", verb, exit, a.text, errs.String())
	}
	return a
}

func (c *container) loopbackUp(t *testing.T) bool {
	t.Helper()
	h, err := link.OpenIn(c.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	up, err := h.LoopbackUp()
	if err != nil {
		t.Fatal(err)
	}
	return up
}

func TestLoopback(t *testing.T) {
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t)
			c := n.newContainer()
			if c.loopbackUp(t) {
				t.Fatal("a new namespace's loopback interface is up already")
			}
			if check := n.callLoopback("CHECK", c, loopbackConfig(version)); check.Code == 0 {
				t.Errorf("CHECK succeeds while the interface is down")
			}
			added := n.callLoopback("ADD", c, loopbackConfig(version))
			if added.Code != 0 || !c.loopbackUp(t) {
				t.Fatalf("ADD: %s", added.text)
			}
			if added.CNIVersion != version || len(added.Interfaces) != 1 || added.Interfaces[0].Name != "lo" || added.Interfaces[0].Sandbox != c.path() {
				t.Errorf("ADD answers %s", added.text)
			}
			var addresses []string
			for _, ip := range added.IPs {
				addresses = append(addresses, ip.Address)
			}
			if diff := cmp.Diff([]string{"127.0.0.1/8", "::1/128"}, addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			again := n.callLoopback("ADD", c, loopbackConfig(version, `"prevResult":`+added.text))
			if again.text != added.text {
				t.Errorf("a previous result is not passed on: %s", again.text)
			}
			check := n.callLoopback("CHECK", c, loopbackConfig(version, `"prevResult":`+added.text))
			if want := map[bool]cni.Code{true: cni.CodeIncompatibleVersion}[version < "0.4.0"]; check.Code != want {
				t.Errorf("CHECK: %s", check.text)
			}
			for range 2 {
				if a := n.callLoopback("DEL", c, loopbackConfig(version)); a.text != "" {
					t.Errorf("DEL answers %s", a.text)
				}
			}
		})
	}
}

func TestLoopbackRefuses(t *testing.T) {
	n := newNode(t)
	c := n.newContainer()
	for name, tt := range map[string]struct {
		verb, config string
		code         cni.Code
	}{
		"no JSON":            {"ADD", "{", cni.CodeDecodingFailure},
		"no version":         {"ADD", `{"name":"cni-loopback","type":"loopback"}`, cni.CodeIncompatibleVersion},
		"an unknown version": {"ADD", loopbackConfig("9.0.0"), cni.CodeIncompatibleVersion},
		"an unknown verb":    {"ERASE", loopbackConfig("1.0.0"), cni.CodeInvalidEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			if a := n.callLoopback(tt.verb, c, tt.config); a.Code != tt.code {
				t.Errorf("answers %s", a.text)
			}
			if c.loopbackUp(t) {
				t.Error("the interface is up")
			}
		})
	}
}

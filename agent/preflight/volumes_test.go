package preflight

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/server/local"
)

func TestForeignVolumesFail(t *testing.T) {
	root := t.TempDir()
	const (
		csi    = "/var/lib/kubelet/pods/0b2c/volumes/kubernetes.io~csi/pvc-1"
		iscsi  = "/var/lib/kubelet/pods/77aa/volumes/kubernetes.io~iscsi/disk"
		staged = "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/disk-lun-0"
		own    = "/var/lib/kubelet/pods/0b2c/volumes/kubernetes.io~empty-dir/cache"
	)
	for name, text := range map[string]string{
		csi + "/vol_data.json": `{"driverName":"disk.example.com"}`, own + "/x": "", iscsi + "/x": "",
		"/var/log/pods/shop_web-0_0b2c/x": "",
		staged + "/x":                     "",
		"/proc/self/mountinfo":            "1 2 8:1 / " + staged + " rw - ext4 /dev/sda rw\n2 2 8:1 / " + iscsi + " rw - ext4 /dev/sda rw\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Root: root}
	o.setDefaults()
	f := healthy()
	f.Volumes = tree(root).volumes(&o)
	findings := checkVolumes(&f)
	if len(findings) != 1 || findings[0].Level != Fail || !Failed(Evaluate(f)) {
		t.Fatalf("got %+v", findings)
	}
	for _, want := range []string{"kubernetes.io~csi/pvc-1 of driver disk.example.com (not mounted) of pod shop/web-0", "kubernetes.io~iscsi/disk of pod 77aa", staged} {
		if !strings.Contains(findings[0].What, want) {
			t.Errorf("%q does not name %q", findings[0].What, want)
		}
	}
	if !strings.HasPrefix(findings[0].Remedy, "drain the node and stop the kubelet first") {
		t.Errorf("remedy %q", findings[0].Remedy)
	}

	f.Volumes = Volumes{Found: make([]string, 500)}
	if what := checkVolumes(&f)[0].What; len(what) > 2000 || !strings.HasSuffix(what, "and 480 more") {
		t.Errorf("%d bytes: %q", len(what), what)
	}
	f.Volumes = Volumes{Found: []string{staged}}
	if findings := checkVolumes(&f); len(findings) != 1 || findings[0].Level != Fail {
		t.Errorf("staged alone: %+v", findings)
	}
	f.Volumes = Volumes{Err: "no mount table"}
	if findings := checkVolumes(&f); len(findings) != 1 || findings[0].Level != Warn {
		t.Errorf("not known: %+v", findings)
	}
	o.Root = t.TempDir()
	if none := tree(o.Root).volumes(&o); len(none.Found) > 0 || none.Err != "" {
		t.Errorf("without pods: %+v", none)
	}
}

// A kubelet listens for device plugins while it runs.
func TestKubelet(t *testing.T) {
	root, err := os.MkdirTemp("", "root") // short: the kernel bounds the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	socket := filepath.Join(root, local.DeviceManagerSocket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		t.Fatal(err)
	}
	check := func() []Finding {
		f := healthy()
		f.Kubelet = Collect(t.Context(), Options{Root: root, Endpoint: "unix://" + root + "/runtime.sock"}).Kubelet
		return checkKubelet(&f)
	}
	if findings := check(); len(findings) != 0 {
		t.Errorf("without a kubelet: %+v", findings)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if findings := check(); len(findings) != 1 || findings[0].Level != Fail || !strings.Contains(findings[0].Remedy, "stop the kubelet") {
		t.Errorf("beside a kubelet: %+v", findings)
	}
}

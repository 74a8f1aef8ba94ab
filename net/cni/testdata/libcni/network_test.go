package libcni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/tinylet/tinylet/net/cni"
)

func TestCollection(t *testing.T) {
	r, l := newRuntime(t), list(t, "1.1.0")
	for _, id := range []string{"c1", "c2"} {
		if _, err := r.AddNetworkList(t.Context(), l, container(id)); err != nil {
			t.Fatal(err)
		}
	}
	stray := filepath.Join(r.state, "at,pods,c3,eth0")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	valid := []types.GCAttachment{{ContainerID: "c2", IfName: "eth0"}}
	if err := r.GCNetworkList(t.Context(), l, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Fatal(err)
	}
	var ids []cni.ID
	if r.last(t, "collect", &ids); len(ids) != 1 || ids[0] != (cni.ID{ContainerID: "c2", Interface: "eth0"}) {
		t.Errorf("GC was told of %v", ids)
	}
	if got := r.attached(t); len(got) != 1 || got[0] != "c2" {
		t.Errorf("%v are attached", got)
	}
	// No list is an accident, an empty one is not.
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.GCNetworkList(t.Context(), l, nil); err == nil || len(r.attached(t)) == 0 {
		t.Errorf("GC without a list: %v, and %v are left", err, r.attached(t))
	}
	if err := r.GCNetworkList(t.Context(), l, &libcni.GCArgs{}); err != nil || r.attached(t) != nil {
		t.Errorf("GC of all: %v, and %v are left", err, r.attached(t))
	}
}

func TestStatus(t *testing.T) {
	r := newRuntime(t)
	if err := r.GetStatusNetworkList(t.Context(), list(t, "1.1.0")); err != nil {
		t.Error(err)
	}
	var network string
	if r.last(t, "status", &network); network != "pods" {
		t.Errorf("STATUS of %q", network)
	}
	if err := os.WriteFile(filepath.Join(r.state, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := r.GetStatusNetworkList(t.Context(), list(t, "1.1.0"))
	if e := coded(t, err); e.Code != uint(cni.CodePluginNotAvailable) || !strings.Contains(e.Details, "the network is down") {
		t.Errorf("got %+v", e)
	}
	if err := r.GetStatusNetworkList(t.Context(), list(t, "1.0.0")); err != nil {
		t.Errorf("libcni asks for STATUS in 1.0.0: %v", err)
	}
}

func coded(t *testing.T, err error) *types.Error {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, which libcni knows no code of", err)
	}
	return e
}

func TestErrors(t *testing.T) {
	r := newRuntime(t)
	for name, test := range map[string]struct {
		list string
		code uint
		want string
	}{
		"version": {`{"cniVersion":"0.2.0","name":"pods","plugins":[{"type":"tinylet-cni"}]}`, types.ErrIncompatibleCNIVersion, "0.2.0"},
		"chained": {`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"tinylet-cni","ranges":[{"subnet":"10.42.0.0/24"}]},{"type":"tinylet-cni","ranges":[{"subnet":"10.42.0.0/24"}]}]}`,
			types.ErrUnsupportedField, "must be the first plugin"},
		"value": {`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"tinylet-cni","ranges":[{"subnet":"x"}]}]}`, types.ErrInvalidNetworkConfig, "ranges[0].subnet"},
		"type":  {`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"tinylet-cni","mtu":"x"}]}`, types.ErrDecodingFailure, "mtu"},
	} {
		l, err := libcni.NetworkConfFromBytes([]byte(test.list))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.AddNetworkList(t.Context(), l, container("c1"))
		if e := coded(t, err); e.Code != test.code || !strings.Contains(e.Details, test.want) {
			t.Errorf("%s: got %+v", name, e)
		}
		if err := r.DelNetworkList(t.Context(), l, container("c1")); err != nil {
			t.Errorf("%s: DEL: %v", name, err)
		}
	}
	c := container("c1")
	if err := r.CheckNetworkList(t.Context(), list(t, "1.0.0"), c); err == nil {
		t.Error("CHECK of what was never added succeeds")
	}
	c.Args = [][2]string{{"UNKNOWN", "1"}}
	_, err := r.AddNetworkList(t.Context(), list(t, "1.0.0"), c)
	if e := coded(t, err); e.Code != types.ErrInvalidEnvironmentVariables || !strings.Contains(e.Details, "CNI_ARGS") {
		t.Errorf("got %+v", e)
	}
}

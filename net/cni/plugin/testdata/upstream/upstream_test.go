// Package upstream holds tinylet-cni, over the real network, between the library
// that container runtimes call network plugins with and the plugins that they
// call without it: bridge, host-local and portmap of containernetworking. It is
// a module of its own, since tinylet has no use for any of them:
//
//	cd net/cni/plugin/testdata/upstream && go test ./...
//	go test -run '^$' -bench . -benchtime 50x
//
// The tests make their own network namespaces and need root.
package upstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the folder for what is built.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "upstream")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// build builds commands into a folder and gives it.
func build(name string, packages ...string) (string, error) {
	dir := filepath.Join(built, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	cmd := exec.Command("go", append([]string{"build", "-ldflags", "-s -w", "-o", dir}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return dir, cmd.Run()
}

// ownBinary is the folder of tinylet-cni: the one that the environment names,
// such as the whole agent under this name, or one built of the same packages.
var ownBinary = sync.OnceValues(func() (string, error) {
	if file := os.Getenv("TINYLET_CNI"); file != "" {
		return filepath.Dir(file), nil
	}
	return build("own", "./tinylet-cni")
})

const others = "github.com/containernetworking/plugins/plugins/"

// otherBinaries is the folder of the plugins of containernetworking.
var otherBinaries = sync.OnceValues(func() (string, error) {
	return build("others", others+"main/bridge", others+"ipam/host-local", others+"meta/portmap")
})

// ownFolder is where tinylet-cni is.
func ownFolder(t testing.TB) string {
	t.Helper()
	dir, err := ownBinary()
	if err != nil {
		t.Fatalf("build tinylet-cni: %v", err)
	}
	return dir
}

// otherFolder is where those of containernetworking are.
func otherFolder(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("the program nft is missing, which portmap writes its rules with: install nftables")
	}
	dir, err := otherBinaries()
	if err != nil {
		t.Fatalf("build the plugins of containernetworking: %v", err)
	}
	return dir
}

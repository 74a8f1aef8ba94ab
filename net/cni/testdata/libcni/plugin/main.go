// Command plugin is tinylet-cni over a network that is a folder of files, the
// folder that CNI_TEST_STATE names: one file for each attachment, with what it
// was set up with, and one, calls, with a line for each call.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/net/cni"
)

func main() {
	f := &folder{path: os.Getenv("CNI_TEST_STATE")}
	os.Exit(cni.Call{Env: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(f.open))
}

type folder struct {
	path   string
	config cni.Config
}

func (f *folder) open(c cni.Config) (cni.Network, error) {
	f.config = c
	return f, nil
}

// record writes a line about a call.
func (f *folder) record(call string, what any) error {
	line, err := json.Marshal(what)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(f.path, "calls"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "%s %s\n", call, line)
	return err
}

func name(network string, id cni.ID) string {
	return strings.Join([]string{"at", network, id.ContainerID, id.Interface}, ",")
}

func (f *folder) file(a *cni.Attachment) string {
	return filepath.Join(f.path, name(a.Config.Name, a.ID))
}

// result is made of the attachment alone.
func result(a *cni.Attachment) cni.Result {
	return cni.Result{
		Interfaces: []cni.Interface{
			{Name: a.Config.Bridge, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1500},
			{Name: a.Interface, MAC: a.MAC, MTU: 1400, Sandbox: a.NetNS},
		},
		IPs: []cni.IP{
			{Interface: 1, Address: netip.MustParsePrefix("10.42.0.7/24"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Interface: 1, Address: netip.MustParsePrefix("fd00::7/64")},
		},
		Routes: []cni.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Dst: netip.MustParsePrefix("::/0"), MTU: 1300, AdvMSS: 1260, Priority: 7, Table: 100, Scope: 253},
		},
	}
}

func (f *folder) Setup(a cni.Attachment) (cni.Result, error) {
	if err := f.record("setup", a); err != nil {
		return cni.Result{}, err
	}
	file, err := os.OpenFile(f.file(&a), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cni.Result{}, err
	}
	return result(&a), file.Close()
}

func (f *folder) Check(a cni.Attachment, prev *cni.Result) error {
	if err := f.record("check", prev); err != nil {
		return err
	}
	if _, err := os.Stat(f.file(&a)); err != nil {
		return &cni.Error{Code: cni.CodeIOFailure, Msg: "it was never attached", Err: err}
	}
	return nil
}

func (f *folder) Teardown(a cni.Attachment) error {
	if err := f.record("teardown", a); err != nil {
		return err
	}
	if err := os.Remove(f.file(&a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) Collect(network string, valid []cni.ID) error {
	if err := f.record("collect", valid); err != nil {
		return err
	}
	var keep []string
	for _, id := range valid {
		keep = append(keep, name(network, id))
	}
	files, err := filepath.Glob(filepath.Join(f.path, "at,"+network+",*"))
	for _, file := range files {
		if !slices.Contains(keep, filepath.Base(file)) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

func (f *folder) Status() error {
	if _, err := os.Stat(filepath.Join(f.path, "down")); err == nil {
		return errors.New("the network is down")
	}
	return f.record("status", f.config.Name)
}

package cri

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestArrival checks that a runtime that starts late is detected by its socket,
// whether it creates the directories or replaces the socket of one that was
// killed.
func TestArrival(t *testing.T) {
	listen := func(t *testing.T, path string) *net.UnixListener {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	for name, test := range map[string]struct {
		socket  string
		prepare func(t *testing.T, socket string)
		err     error
	}{
		"in its folder":   {socket: "s", err: syscall.ENOENT},
		"without folders": {socket: "run/containerd/s", err: syscall.ENOENT},
		"after a dead one": {socket: "s", err: syscall.ECONNREFUSED, prepare: func(t *testing.T, socket string) {
			l := listen(t, socket)
			l.SetUnlinkOnClose(false)
			l.Close()
		}},
		"in a folder made anew": {socket: "run/s", err: syscall.ENOENT, prepare: func(t *testing.T, socket string) {
			if err := os.Mkdir(filepath.Dir(socket), 0o755); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(50*time.Millisecond, func() { _ = os.Remove(filepath.Dir(socket)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cri") // t.TempDir's path may be too long
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			socket := filepath.Join(dir, test.socket)
			if test.prepare != nil {
				test.prepare(t, socket)
			}
			told := make(chan struct{}, 100)
			a := &socketWatcher{path: socket, retry: func() { told <- struct{}{} }}
			defer a.close()
			a.onDial(test.err)
			time.Sleep(200 * time.Millisecond)
			for len(told) > 0 {
				<-told // of the dead one's socket
			}
			if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(socket)
			listen(t, socket)
			select {
			case <-told:
			case <-time.After(10 * time.Second):
				t.Error("the runtime's socket was not noticed")
			}
			a.onDial(nil)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				a.watches.Wait()
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("it is still being watched for")
			}
		})
	}
}

func TestArrivalIsNotForOtherFaults(t *testing.T) {
	a := &socketWatcher{path: "/run/x.sock"}
	a.onDial(errors.New("no such protocol"))
	a.onDial(syscall.EACCES)
	if a.stop != nil {
		t.Error("a socket that is there is watched for")
	}
	a.close()
	a.onDial(syscall.ENOENT)
	if a.stop != nil {
		t.Error("watched for after the driver was closed")
	}
}

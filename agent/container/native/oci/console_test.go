package oci

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadPacketBeforeEnd reads a packet whose sender closes the connection at once. Over the
// rounds the packet arrives at each moment of the read. One that arrives between the two checks of
// the kernel is rare: without the second read of ReadPacket, 10 of 60 runs failed.
func TestReadPacketBeforeEnd(t *testing.T) {
	senders := make(chan int)
	var reads atomic.Int32 // that are about to begin
	go func() {
		round := int32(0)
		for sender := range senders {
			for round++; reads.Load() < round; {
				runtime.Gosched()
			}
			for range round % 1000 { // less than a microsecond
			}
			_, _ = unix.Write(sender, []byte("packet"))
			_ = unix.Close(sender)
		}
	}()
	defer close(senders)
	buffer := make([]byte, 16)
	for range 20_000 {
		reader, sender := packetPair(t)
		senders <- sender
		reads.Add(1)
		if data, _, err := ReadPacket(reader, buffer); err != nil || string(data) != "packet" {
			t.Fatalf("the packet is %q, %v", data, err)
		}
		if data, _, err := ReadPacket(reader, buffer); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last packet comes %q, %v", data, err)
		}
		_ = reader.Close()
	}
}

func packetPair(t *testing.T) (reader *net.UnixConn, sender int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "packets")
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn), fds[1]
}

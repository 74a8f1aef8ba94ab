package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

// TestInterruptedDump repeats a dump that was interrupted, but not forever.
func TestInterruptedDump(t *testing.T) {
	attempts := 0
	interrupted := func(times int) (int, error) {
		attempts = 0
		return read(func() (int, error) {
			if attempts++; attempts <= times {
				return 0, netlink.ErrDumpInterrupted
			}
			return 7, nil
		})
	}
	if got, err := interrupted(3); got != 7 || err != nil || attempts != 4 {
		t.Errorf("%d, %v after %d attempts", got, err, attempts)
	}
	if _, err := interrupted(1000); !errors.Is(err, ErrChanging) || attempts != dumpAttempts {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestTranslate(t *testing.T) {
	for _, row := range []struct{ err, want error }{
		{unix.ENODEV, ErrNotFound},
		{fmt.Errorf("alias: %w", unix.ENODEV), ErrNotFound},
		{netlink.LinkNotFoundError{}, ErrNotFound},
		{unix.EAGAIN, os.ErrDeadlineExceeded},
		{unix.EEXIST, fs.ErrExist},
		{unix.EINVAL, unix.EINVAL},
	} {
		if got := translate(row.err); !errors.Is(got, row.want) {
			t.Errorf("%T %v gives %v, want %v", row.err, row.err, got, row.want)
		}
	}
	if err := translate(nil); err != nil {
		t.Error(err)
	}
}

// TestNoAnswer sends what the kernel does not answer.
func TestNoAnswer(t *testing.T) {
	h, _ := opened(t)
	send, receive := h.own.GetTimeouts()
	if send != answerTimeout || receive != answerTimeout {
		t.Errorf("deadlines %v and %v", send, receive)
	}
	limit := unix.NsecToTimeval(50e6)
	if err := h.own.SetReceiveTimeout(&limit); err != nil {
		t.Fatal(err)
	}
	request := h.request(unix.NLMSG_NOOP, 0)
	request.Flags &^= unix.NLM_F_ACK
	if err := execute(request); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

// TestExplanation checks that the kernel explains errors of the requests that this
// package builds.
func TestExplanation(t *testing.T) {
	h, _ := opened(t)
	request := h.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE)
	request.AddRawData([]byte{unix.AF_INET, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	err := execute(request)
	if !errors.Is(err, unix.EINVAL) || err.Error() == unix.EINVAL.Error() {
		t.Errorf("a prefix of 200 bits: %v", err)
	}
}

func TestCloseLeavesNoSocket(t *testing.T) {
	ns := nstest.New(t)
	before := openFiles(t)
	for range 20 {
		h, err := OpenIn(ns)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Links(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	// The runtime may open files of its own for the first socket.
	if after := openFiles(t); after > before+3 {
		t.Errorf("%d files were open, and %d are", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

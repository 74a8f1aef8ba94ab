package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// upgradeTimeout limits the wait for containers that start or end.
const upgradeTimeout = 5 * time.Second

// upgrade replaces the program of the process. It returns only after an error, with which
// nothing has changed.
func (k *Keeper) upgrade(program int) error {
	if !k.pause() {
		return fmt.Errorf("%w: containers start", ErrBusy)
	}
	defer k.work.Unlock()
	// No output is read and no child reaped from here on. What the program has read is in
	// the handover, and children that end wait for the next program.
	k.outputs.busy.Lock()
	defer k.outputs.busy.Unlock()
	k.reaper.mu.Lock()
	defer k.reaper.mu.Unlock()
	h, err := k.handover()
	if err != nil {
		return err
	}
	state, err := writeHandover(h)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(state) }()
	passed := append(h.descriptors(), state)
	if err := inherit(passed); err != nil {
		return err
	}
	env := append(os.Environ(), handoverVariable+"="+strconv.Itoa(state))
	err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(program), os.Args, env)
	for _, fd := range passed {
		unix.CloseOnExec(fd)
	}
	_ = unix.Close(h.Listener) // a duplicate
	return fmt.Errorf("execute new program: %w", err)
}

// pause waits until no container starts or ends, and prevents it.
func (k *Keeper) pause() bool {
	ctx, cancel := context.WithTimeout(context.Background(), upgradeTimeout)
	defer cancel()
	for !k.work.TryLock() {
		if !wait.Pause(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return true
}

func (k *Keeper) handover() (*handover, error) {
	listener, err := k.listener.File()
	if err != nil {
		return nil, fmt.Errorf("hand over socket: %w", err)
	}
	fd, err := unix.FcntlInt(listener.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, fmt.Errorf("hand over socket: %w", err)
	}
	h := &handover{Lock: k.lock, Listener: fd}
	for _, c := range k.all("") {
		item := handoverItem{State: c.snapshot(), Stdin: -1}
		c.mu.Lock()
		item.Stdin = c.stdin
		streams := c.streams
		c.mu.Unlock()
		for _, s := range streams {
			s.mu.Lock()
			if !s.closed {
				out := handoverStream{Name: s.entries.stream, FD: s.fd, Terminal: item.State.Terminal, Pending: s.entries.pending}
				for _, t := range s.tees {
					out.Clients = append(out.Clients, t.fd)
				}
				item.Streams = append(item.Streams, out)
			}
			s.mu.Unlock()
		}
		h.Containers = append(h.Containers, item)
	}
	return h, nil
}

// writeHandover returns a descriptor from which the handover can be read.
func writeHandover(h *handover) (int, error) {
	data, err := json.Marshal(h)
	if err != nil {
		return -1, fmt.Errorf("encode handover: %w", err)
	}
	fd, err := unix.MemfdCreate("handover", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("create handover: %w", err)
	}
	_, err = writeAll(fd, data)
	if err == nil {
		_, err = unix.Seek(fd, 0, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("write handover: %w", err)
	}
	return fd, nil
}

// inherit keeps descriptors open in the next program.
func inherit(fds []int) error {
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hand over descriptor: %w", err)
		}
	}
	return nil
}

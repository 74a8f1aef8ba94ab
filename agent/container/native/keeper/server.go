package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/wait"
)

const (
	// maxConnections bounds the clients. A container that starts takes one.
	maxConnections = 64
	// requestTimeout limits the wait for a request on a new connection.
	requestTimeout = 5 * time.Second
	// acceptDelay is the wait for descriptors if the process has too many.
	acceptDelay = 100 * time.Millisecond
	// pageSize is the most containers in a response: some 400 bytes each.
	pageSize = 64
	// maxRequest bounds a request in bytes.
	maxRequest = 16 << 10
)

// serve accepts clients.
func (k *Keeper) serve() error {
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := k.listener.AcceptUnix()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			wait.Pause(context.Background(), acceptDelay) // other requests may return descriptors
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				defer func() { _ = conn.Close() }()
				k.answer(conn)
				k.release.Reset(releaseAfter)
			}()
		default:
			_ = conn.Close()
		}
	}
}

// answer serves one client, which has one request.
func (k *Keeper) answer(conn *net.UnixConn) {
	if err := checkPeer(conn); err != nil {
		k.config.Log.Warn("rejected client", "error", err)
		return
	}
	r, fds, err := readRequest(conn)
	if err != nil {
		_ = send(conn, failure(fmt.Errorf("%w: %w", ErrInvalid, err)), -1)
		return
	}
	if r.Op == opWatch {
		oci.CloseAll(fds)
		k.watch(conn)
		return
	}
	response, fd := k.handle(r, fds)
	_ = send(conn, response, fd) // a client that is gone asks the next time
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// checkPeer rejects clients of other users.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil {
		return controlErr
	}
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("client has UID %d", peer.Uid)
	}
	return nil
}

func readRequest(conn *net.UnixConn) (*request, []int, error) {
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, nil, err
	}
	data, fds, err := oci.ReadPacket(conn, make([]byte, maxRequest))
	if err != nil {
		return nil, nil, err
	}
	r := new(request)
	if err := json.Unmarshal(data, r); err != nil {
		oci.CloseAll(fds)
		return nil, nil, err
	}
	return r, fds, nil
}

// send sends a response, with a copy of a descriptor unless that is -1.
func send(conn *net.UnixConn, r response, fd int) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(data, rights, nil)
	return err
}

// handle serves a request, and closes its descriptors unless it keeps them. fd is the
// descriptor that the response is sent with, or -1.
func (k *Keeper) handle(r *request, fds []int) (answer response, fd int) {
	fd = -1
	if r.Op != opAttach {
		defer oci.CloseAll(fds)
	}
	var err error
	switch r.Op {
	case opHello:
		answer.Hello = &Hello{Protocol: Protocol, Build: k.config.Build, PID: os.Getpid()}
	case opStart:
		err = k.handleStart(r, &answer)
	case opList:
		k.handleList(r, &answer)
	case opAck:
		err = k.ack(r.ID)
	case opUpgrade:
		if len(fds) != 1 {
			err = fmt.Errorf("%w: %d descriptors, want that of the program", ErrInvalid, len(fds))
			break
		}
		err = k.upgrade(fds[0])
	case opAttach:
		fd, err = k.attach(r, fds)
	case opReopen, opCloseStdin, opResize:
		err = k.handleRunning(r)
	default:
		err = fmt.Errorf("%w: unknown operation %q", ErrInvalid, r.Op)
	}
	if err != nil {
		return failure(err), -1
	}
	return answer, fd
}

func (k *Keeper) handleStart(r *request, answer *response) error {
	if r.Start == nil {
		return fmt.Errorf("%w: it has no container", ErrInvalid)
	}
	k.work.RLock()
	defer k.work.RUnlock()
	state, err := k.start(r.Start)
	answer.Container = &state
	return err
}

func (k *Keeper) handleList(r *request, answer *response) {
	all := k.all(r.After)
	answer.More = len(all) > pageSize
	for _, c := range all[:min(len(all), pageSize)] {
		answer.Containers = append(answer.Containers, c.snapshot())
	}
}

// running returns a container that runs.
func (k *Keeper) running(id string) (*container, error) {
	c, err := k.container(id)
	if err != nil {
		return nil, err
	}
	if phase := c.snapshot().Phase; phase != PhaseRunning {
		return nil, fmt.Errorf("%w: container %s is %s", ErrNotRunning, id, phase)
	}
	return c, nil
}

func (k *Keeper) handleRunning(r *request) error {
	c, err := k.running(r.ID)
	if err != nil {
		return err
	}
	switch r.Op {
	case opReopen:
		return c.log.reopen()
	case opCloseStdin:
		c.closeStdin()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master < 0 || r.Size == nil {
		return fmt.Errorf("%w: container %s has no terminal", ErrInvalid, r.ID)
	}
	return unix.IoctlSetWinsize(c.master, unix.TIOCSWINSZ, &unix.Winsize{Col: r.Size.Width, Row: r.Size.Height})
}

// attach copies the output of a container to descriptors, which it owns. It returns a
// descriptor of the terminal or of the standard input, which the caller closes, or -1.
func (k *Keeper) attach(r *request, fds []int) (int, error) {
	c, err := k.running(r.ID)
	streams := make([]string, 0, 2)
	if r.Stdout {
		streams = append(streams, "stdout")
	}
	if r.Stderr {
		streams = append(streams, "stderr")
	}
	if err == nil && len(fds) != len(streams) {
		err = fmt.Errorf("%w: %d descriptors, want %d", ErrInvalid, len(fds), len(streams))
	}
	if err != nil {
		oci.CloseAll(fds)
		return -1, err
	}
	for i, name := range streams {
		s := c.stream(name)
		if s == nil { // a terminal has no standard error
			_ = unix.Close(fds[i])
			continue
		}
		if err := s.attach(fds[i]); err != nil {
			oci.CloseAll(fds[i+1:])
			return -1, err
		}
	}
	return c.input()
}

// watch sends exits until the client closes the connection.
func (k *Keeper) watch(conn *net.UnixConn) {
	_ = conn.SetReadDeadline(time.Time{})
	wake := wait.NewWakeup()
	k.mu.Lock()
	k.watchers[wake] = struct{}{}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watchers, wake)
	}()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // returns when the client is gone
	}()
	sent := map[string]int64{} // finishing times, by ID
	for {
		for _, state := range k.exits() {
			if sent[state.ID] == state.FinishedAt {
				continue
			}
			if err := send(conn, response{Container: &state}, -1); err != nil {
				return
			}
			if len(sent) > 2*maxContainers {
				clear(sent)
			}
			sent[state.ID] = state.FinishedAt
		}
		select {
		case <-wake:
		case <-gone:
			return
		}
	}
}

package nft

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTimeout bounds the wait for an answer. The kernel answers before the
// system call that sends the request returns.
const answerTimeout = 10 * time.Second

// dumpTries bounds how often a listing is repeated because the objects changed
// meanwhile. Every transaction in the namespace counts, also those of other pods:
// while forty pods start on two processors, two of five listings are interrupted.
const dumpTries = 64

// receiveLen is the size of the largest datagram of a listing (netlink_dump in
// net/netlink/af_netlink.c).
const receiveLen = 32 << 10

// errInterrupted means that the listed objects changed during each try.
var errInterrupted = errors.New("nftables objects change during each listing")

// conn is a netlink socket of the family netfilter. It must be used by one
// goroutine at a time.
//
// The requests are sent by netlink.Conn. The answers are not received by it: its Receive
// drops the number of the message that an error is about, and returns a listing only when
// all of it is in memory. conn handles a listing one datagram at a time, because the list
// of tracked connections may have many megabytes.
type conn struct {
	socket *netlink.Conn
	raw    syscall.RawConn
	buffer []byte
}

// dial opens a socket in the network namespace of the calling thread.
func dial() (*conn, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	// The kernel then does not repeat the request in errors. Linux before 4.2 lacks the option.
	_ = socket.SetOption(netlink.CapAcknowledge, true)
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &conn{socket: socket, raw: raw}, nil
}

// send sends messages in one system call, and numbers them in ascending order.
func (c *conn) send(messages []netlink.Message) error {
	err := c.socket.SetReadDeadline(time.Now().Add(answerTimeout))
	if err == nil {
		_, err = c.socket.SendMessages(messages)
	}
	if errors.Is(err, unix.EMSGSIZE) {
		// All messages have to fit into the send buffer.
		size := 0
		for _, m := range messages {
			size += int(m.Header.Length)
		}
		if err = c.socket.SetWriteBuffer(size + 4096); err == nil {
			_, err = c.socket.SendMessages(messages)
		}
	}
	return err
}

// receive reads one datagram of the kernel, which may contain several messages. They
// are valid until the next call. With wait it waits until the read deadline that send has
// set; otherwise the error is EAGAIN if there is no datagram.
func (c *conn) receive(wait bool) ([]syscall.NetlinkMessage, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, receiveLen)
	}
	for {
		var n, flags int
		var from unix.Sockaddr
		var err error
		waitErr := c.raw.Read(func(fd uintptr) bool {
			n, _, flags, from, err = unix.Recvmsg(int(fd), c.buffer, nil, 0)
			return !wait || !errors.Is(err, unix.EAGAIN)
		})
		switch sender, ok := from.(*unix.SockaddrNetlink); {
		case waitErr != nil:
			return nil, fmt.Errorf("receive by netlink within %v: %w", answerTimeout, waitErr)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			// There were more errors than fit into the receive buffer: it has the first ones.
		case err != nil:
			return nil, fmt.Errorf("receive by netlink: %w", err)
		case flags&unix.MSG_TRUNC != 0:
			return nil, fmt.Errorf("receive by netlink: a message is larger than %d bytes", len(c.buffer))
		case ok && sender.Pid != 0: // another process: the kernel has port 0
		default:
			return syscall.ParseNetlinkMessage(c.buffer[:align(n)])
		}
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// drain drops the remaining answers to a request that failed. The kernel has sent
// all of them by then.
func (c *conn) drain() {
	for {
		if _, err := c.receive(false); err != nil {
			return
		}
	}
}

// messageError is the kernel's error on one message. It unwraps to the errno.
type messageError struct {
	message netlink.Message
	errno   unix.Errno
}

func (e *messageError) Error() string { return e.errno.Error() }
func (e *messageError) Unwrap() error { return e.errno }

// errnoOf reads the errno of an NLMSG_ERROR or NLMSG_DONE, 0 for none.
func errnoOf(m syscall.NetlinkMessage) unix.Errno {
	if len(m.Data) < 4 {
		return 0
	}
	return unix.Errno(-int32(native.Uint32(m.Data)))
}

// execute sends messages, and waits until those with netlink.Acknowledge are
// acknowledged. Its error is a *messageError for the first message that the
// kernel reports an error on, or one of the socket. The kernel handles the other
// messages all the same, except in a transaction.
func (c *conn) execute(messages []netlink.Message) error {
	if err := c.send(messages); err != nil {
		return err
	}
	first, waiting := messages[0].Header.Sequence, 0
	for _, m := range messages {
		if m.Header.Flags&netlink.Acknowledge != 0 {
			waiting++
		}
	}
	for waiting > 0 {
		received, err := c.receive(true)
		if err != nil {
			return err
		}
		for _, m := range received {
			index := m.Header.Seq - first
			if m.Header.Type != unix.NLMSG_ERROR || index >= uint32(len(messages)) {
				continue // an answer to an earlier request
			}
			if errno := errnoOf(m); errno != 0 {
				c.drain()
				return &messageError{messages[index], errno}
			}
			waiting--
		}
	}
	return nil
}

// dump sends a request for a list, or for one object, and calls each for the
// payload of every message of the answer. A payload is valid during the call.
// dump begins again when the list changes meanwhile: it calls begin before each
// try, unless begin is nil.
func (c *conn) dump(request netlink.Message, begin func(), each func(payload []byte)) error {
	for range dumpTries {
		if begin != nil {
			begin()
		}
		interrupted, err := c.dumpOnce(request, each)
		if err != nil || !interrupted {
			return err
		}
	}
	return errInterrupted
}

func (c *conn) dumpOnce(request netlink.Message, each func(payload []byte)) (interrupted bool, err error) {
	requests := []netlink.Message{request}
	if err := c.send(requests); err != nil {
		return false, err
	}
	for {
		received, err := c.receive(true)
		if err != nil {
			return false, err
		}
		for _, m := range received {
			if m.Header.Seq != requests[0].Header.Sequence {
				continue // an answer to an earlier request
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			if m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR {
				if errno := errnoOf(m); errno != 0 {
					return false, &messageError{request, errno}
				}
				return interrupted, nil
			}
			each(m.Data)
			if m.Header.Flags&unix.NLM_F_MULTI == 0 {
				return interrupted, nil
			}
		}
	}
}

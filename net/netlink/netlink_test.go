package netlink

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

func link(b *Builder, kind, flags uint16, name string) {
	b.Begin(kind, flags)
	b.Raw(make([]byte, unix.SizeofIfInfomsg))
	b.String(unix.IFLA_IFNAME, name)
}

func bridge(b *Builder, name string) {
	link(b, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, name)
	info := b.Nest(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.End(info)
}

func names(t *testing.T, c *Conn) []string {
	t.Helper()
	var b Builder
	b.Begin(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	b.Raw(make([]byte, unix.SizeofIfInfomsg))
	var all []string
	if err := c.Dump(&b, func() { all = nil }, func(kind uint16, p []byte) error {
		if kind != unix.RTM_NEWLINK {
			t.Errorf("kind %d", kind)
		}
		all = append(all, Text(Attribute(p[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestConn(t *testing.T) {
	ns := nstest.New(t)
	c, err := DialIn(unix.NETLINK_ROUTE, ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := len(names(t, c))
	var b Builder
	if err := c.Do(&b); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
	bridge(&b, "one")
	bridge(&b, "one")
	bridge(&b, "two")
	err = c.Do(&b)
	var said *Error
	if !errors.As(err, &said) || said.Index != 1 || !errors.Is(err, unix.EEXIST) {
		t.Errorf("a bridge that exists: %#v", err)
	}
	if got := names(t, c); len(got) != before+2 {
		t.Errorf("links %v", got)
	}
	// What an earlier request left unread is not taken for this one's answer.
	b.Reset()
	bridge(&b, "three")
	if err := c.Do(&b); err != nil {
		t.Errorf("after an error: %v", err)
	}
	b.Reset()
	link(&b, unix.RTM_GETLINK, 0, "none")
	if err := c.Dump(&b, nil, func(uint16, []byte) error { return nil }); !errors.Is(err, unix.ENODEV) {
		t.Errorf("one that is not there: %v", err)
	}
	b.Reset()
	link(&b, unix.RTM_GETLINK, 0, "three")
	found := 0
	if err := c.Dump(&b, nil, func(uint16, []byte) error { found++; return nil }); err != nil || found != 1 {
		t.Errorf("one object: %d, %v", found, err)
	}
}

func TestExplanation(t *testing.T) {
	c, err := DialIn(unix.NETLINK_ROUTE, nstest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b Builder
	b.Begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	b.Raw([]byte{unix.AF_INET, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	err = c.Do(&b)
	var said *Error
	if !errors.As(err, &said) || said.Text == "" {
		t.Errorf("no explanation of a prefix of 200 bits: %v", err)
	}
}

func FuzzAttributes(f *testing.F) {
	var b Builder
	b.Begin(1, 2)
	at := b.Nest(3)
	b.String(4, "text")
	b.Uint64(5, 6)
	b.End(at)
	b.Bytes(7, nil)
	f.Add(b.buf)
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest, seen := data, 0; ; {
			m, more, ok := next(rest)
			if !ok {
				break
			}
			if seen++; len(more) >= len(rest) || seen > len(data) {
				t.Fatal("it does not go on")
			}
			_, _ = verdict(m)
			rest = more
		}
		total := 0
		for _, value := range Attributes(data) {
			total += len(value) + attrLen
			_, _ = Text(value), Number32(value)
		}
		if total > len(data) {
			t.Errorf("%d bytes of attributes in %d", total, len(data))
		}
	})
}

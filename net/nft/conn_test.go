package nft

import (
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

// TestManyErrors has the kernel report more errors than the receive buffer holds.
// The first one counts, and the socket stays usable for both kinds of lists.
func TestManyErrors(t *testing.T) {
	table := open(t, nstest.New(t))
	ensure(t, table, both, true)
	add(t, table, somePorts(t)...)
	b := table.begin(0)
	b.newTable(tableComment)
	for range 5000 {
		b.deleteSet("none")
	}
	err := table.commit(b)
	var refused *messageError
	if !errors.As(err, &refused) || refused.errno != unix.ENOENT || refused.message.Header.Sequence != b.messages[2].Header.Sequence {
		t.Errorf("%+v", err)
	}
	same(t, listed(t, table), somePorts(t))
	if err := table.Verify(both); err != nil {
		t.Error(err)
	}
}

// TestSameAttributes has what the kernel adds, leaves out and orders otherwise.
func TestSameAttributes(t *testing.T) {
	seven, none, inner := number(1, 7), number(2, 0), nested(3, number(1, 8), text(2, "a"))
	want := attributes(encode(seven, none, inner))
	for name, c := range map[string]struct {
		listed []netlink.Attribute
		same   bool
	}{
		"same":              {[]netlink.Attribute{seven, none, inner}, true},
		"another order":     {[]netlink.Attribute{inner, seven, none}, true},
		"no zero":           {[]netlink.Attribute{seven, inner}, true},
		"one more zero":     {[]netlink.Attribute{seven, none, inner, number(4, 0)}, true},
		"nested not marked": {[]netlink.Attribute{seven, bytesOf(3, encode(text(2, "a"), number(1, 8)))}, true},
		"another number":    {[]netlink.Attribute{number(1, 6), inner}, false},
		"one more":          {[]netlink.Attribute{seven, inner, number(4, 1)}, false},
		"another inside":    {[]netlink.Attribute{seven, nested(3, number(1, 9), text(2, "a"))}, false},
		"one more inside":   {[]netlink.Attribute{seven, nested(3, number(1, 8), text(2, "a"), number(3, 1))}, false},
		"none":              {nil, false},
		"malformed inside":  {[]netlink.Attribute{seven, bytesOf(3, []byte{1})}, false},
	} {
		if got := want.same(encode(c.listed...)); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

package cgroups

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

// encodedMessage is a message as it comes over the wire.
func encodedMessage(tb testing.TB, body ...any) []byte {
	tb.Helper()
	m := dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(uint32(1)),
	}}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var b bytes.Buffer
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// FuzzAnswers has whoever speaks as systemd send whatever can be said in D-Bus,
// as an answer and as a signal.
func FuzzAnswers(f *testing.F) {
	f.Add(encodedMessage(f, dbus.MakeVariant("252.38-1~deb12u1")))
	f.Add(encodedMessage(f, dbus.MakeVariant(uint64(7))))
	f.Add(encodedMessage(f, dbus.ObjectPath("/org/freedesktop/systemd1/job/7")))
	f.Add(encodedMessage(f, uint32(7), dbus.ObjectPath("/org/freedesktop/systemd1/job/7"), "pod.slice", "done"))
	f.Add(encodedMessage(f, uint32(7), "x", []string{"pod.slice"}, map[string]dbus.Variant{"a": dbus.MakeVariant([]int32{1})}))
	f.Add(encodedMessage(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := decode(data)
		if m == nil {
			return
		}
		const unit = "pod.slice"
		j := &jobs{waiting: map[*job]struct{}{}}
		waiter := j.expect(unit)
		for range 2 * earlier { // more than are kept
			j.DeliverSignal(managerMethods, jobRemoved, &dbus.Signal{Body: m.Body})
		}
		if n := len(waiter.ends); n > 0 {
			if len(m.Body) != 4 || m.Body[2] != unit || n > earlier {
				t.Errorf("%d ends of %+v", n, m.Body)
			}
		}
		path, err := jobPath(m.Body)
		if len(m.Body) == 1 { // what is of another type is the path of no job
			if sent, ok := m.Body[0].(dbus.ObjectPath); ok && (err != nil || sent != path) {
				t.Errorf("the job of %+v is %q: %v", m.Body, path, err)
			}
		}
		if v, err := readVersion(m.Body); err == nil && v < 0 {
			t.Errorf("version %d of %+v", v, m.Body)
		}
	})
}

// decode reads one message, as whoever passes messages on does: a message whose
// lengths are not those of its parts is none, nor is one with structures of
// nothing. The library ends with a panic on some of the former, and does not end
// on the latter.
func decode(data []byte) (m *dbus.Message) {
	if len(data) < 16 {
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if data[0] == 'B' {
		order = binary.BigEndian
	}
	body, head := uint64(order.Uint32(data[4:])), uint64(order.Uint32(data[12:]))
	if 16+(head+7)/8*8+body != uint64(len(data)) || bytes.Contains(data, []byte("()")) {
		return nil
	}
	defer func() {
		if recover() != nil {
			m = nil
		}
	}()
	m, err := dbus.DecodeMessage(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	return m
}

func FuzzVersion(f *testing.F) {
	for _, text := range []string{"252.38-1~deb12u1", "v245", "", "99999999999999999999", "-1", "v"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v := versionOf(text); v < 0 || v > 0 && !strings.ContainsAny(text, "0123456789") {
			t.Errorf("%q is version %d", text, v)
		}
	})
}

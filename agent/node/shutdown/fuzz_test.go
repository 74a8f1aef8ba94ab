package shutdown

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/godbus/dbus/v5"
)

// FuzzAnswers lets logind send arbitrary D-Bus replies.
func FuzzAnswers(f *testing.F) {
	add := func(body ...any) {
		m := dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(uint32(1)),
		}}
		if len(body) > 0 {
			m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
		}
		var b bytes.Buffer
		if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	add(dbus.MakeVariant(true))
	add(dbus.MakeVariant(uint64(5000000)))
	add(dbus.MakeVariant(^uint64(0)))
	add(dbus.MakeVariant([]string{"x"}))
	add("no variant")
	add()
	f.Fuzz(func(t *testing.T, data []byte) {
		m := decode(data)
		if m == nil {
			return
		}
		var preparing bool
		var micros uint64
		if readProperty(&dbus.Call{Body: m.Body}, &preparing) == nil && readProperty(&dbus.Call{Body: m.Body}, &micros) == nil {
			t.Errorf("%+v is both a switch and a time", m.Body)
		}
		if delayOf(micros) < 0 {
			t.Errorf("%d microseconds are %v", micros, delayOf(micros))
		}
		l := &logind{trigger: make(chan struct{}, 1)}
		for range 2 {
			l.DeliverSignal(loginManager, prepareSignal, &dbus.Signal{Body: m.Body})
		}
		if len(l.trigger) != 1 {
			t.Error("the signal was not heard")
		}
	})
}

// decode reads one message that a bus would forward. It rejects a message with
// inconsistent lengths or with empty structures: the library panics on some of the
// former and does not return on the latter.
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

package cgroups

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// encodedMessage returns a message as bytes.
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

// FuzzAnswers sends any D-Bus message as systemd's: as the answer to a call, and as the
// signal of the end of a job. No message may block or crash the libraries, or end a job
// with another result than its own.
func FuzzAnswers(f *testing.F) {
	f.Add(encodedMessage(f, dbus.MakeVariant("252.38-1~deb12u1")))
	f.Add(encodedMessage(f, dbus.MakeVariant(uint64(7))))
	f.Add(encodedMessage(f, fuzzedJob))
	f.Add(encodedMessage(f, uint32(7), fuzzedJob, "pod.slice", "done"))
	f.Add(encodedMessage(f, uint32(7), fuzzedJob, "pod.slice", "failed"))
	f.Add(encodedMessage(f, uint32(7), fuzzedJob, "pod.slice", uint64(1)))
	f.Add(encodedMessage(f, uint32(7), "x", []string{"pod.slice"}, map[string]dbus.Variant{"a": dbus.MakeVariant([]int32{1})}))
	f.Add(encodedMessage(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := decode(data)
		if m == nil {
			return
		}
		if v, err := versionOf(m.Body); err == nil && v < 0 {
			t.Errorf("version %d of %+v", v, m.Body)
		}
		ended := []any{uint32(7), fuzzedJob, "pod.slice", "done"}
		if err := fuzzedStop(t, m.Body, ended); err == nil {
			var path dbus.ObjectPath
			if dbus.Store(m.Body, &path) != nil || path != fuzzedJob {
				t.Errorf("the job is that of %+v", m.Body)
			}
		}
		if err := fuzzedStop(t, []any{fuzzedJob}, m.Body); err == nil {
			if len(m.Body) != 4 || m.Body[1] != fuzzedJob || m.Body[3] != "done" {
				t.Errorf("the job ended with %+v", m.Body)
			}
		}
	})
}

const fuzzedJob = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")

// fuzzedStop stops a unit of a systemd that answers with one body, sends the end of a job
// with another, and closes the connection.
func fuzzedStop(t *testing.T, answer, ended []any) error {
	t.Helper()
	client, server := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		defer server.Close()
		in := bufio.NewReader(server)
		if introduced(server, in) != nil {
			return
		}
		for {
			call, err := dbus.DecodeMessage(in)
			if err != nil {
				return
			}
			var body []any
			member, _ := call.Headers[dbus.FieldMember].Value().(string)
			switch member {
			case "Get":
				body = []any{dbus.MakeVariant("252")}
			case "StopUnit":
				body = answer
			}
			if !sent(server, func() *dbus.Message {
				reply := message(dbus.TypeMethodReply, body)
				reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(call.Serial())
				return reply
			}) {
				return
			}
			if member == "StopUnit" {
				sent(server, func() *dbus.Message { return jobRemoved(ended) })
				return
			}
		}
	})
	defer served.Wait()
	s := newSystemd("/")
	defer s.close()
	s.answerTime, s.jobTime = 5*time.Second, 5*time.Second
	c, err := s.open(client, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	begun := time.Now()
	err = c.job("StopUnit", "pod.slice", func(ctx context.Context, ended chan<- string) (int, error) {
		return c.StopUnitContext(ctx, "pod.slice", "replace", ended)
	})
	if errors.Is(err, ErrUnanswered) && !errors.Is(err, errBroken) {
		t.Errorf("it waited %v for %+v and %+v", time.Since(begun), answer, ended)
	}
	return err
}

// sent sends a message, unless it cannot be encoded, or a bus would reject it.
func sent(to io.Writer, what func() *dbus.Message) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	var b bytes.Buffer
	if what().EncodeTo(&b, binary.LittleEndian) != nil || decode(b.Bytes()) == nil {
		return false
	}
	_, err := to.Write(b.Bytes())
	return err == nil
}

// decode decodes one message as a bus does: it rejects a message whose lengths are not
// those of its parts, and one with empty structures. The library panics on some of the
// former, or allocates the length of a string, up to 4 GB, before it reads one, and does
// not return on the latter.
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
	for at := 16; at+4 <= len(data); at += 4 { // where lengths are
		if order.Uint32(data[at:]) > 1<<24 {
			return nil
		}
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
		if v := parseVersion(text); v < 0 || v > 0 && !strings.ContainsAny(text, "0123456789") {
			t.Errorf("%q is version %d", text, v)
		}
	})
}

package offline

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

func crc(data []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// world is the acknowledged state: the image of each pod, with "!" once it has
// ended, and the last answer for each pod's ConfigMap.
type world struct {
	pods, maps map[string]string
}

func (w world) clone() world { return world{maps.Clone(w.pods), maps.Clone(w.maps)} }

// found is what a start finds in a folder.
func found(t *testing.T, dir string, key func() ([]byte, error)) (world, *Store) {
	t.Helper()
	s, err := Open(Config{Dir: dir, Key: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := world{make(map[string]string), make(map[string]string)}
	api := newServer()
	api.state(false, errLink)
	for _, p := range s.Pods() {
		w.pods[string(p.UID)] = p.Spec.Containers[0].Image
		if pod.IsTerminal(p.Status.Phase) {
			w.pods[string(p.UID)] += "!"
			continue
		}
		if m, err := s.Reader(api).ConfigMap(context.Background(), "ns", mapOf(string(p.UID))); err == nil {
			w.maps[string(p.UID)] = m.Data["k"][:8]
		}
	}
	return w, s
}

// mapOf is the ConfigMap that a pod refers to; two share one.
func mapOf(uid string) string { return "map-" + string('a'+(uid[0]-'a')/2) }

// stands fails unless what a start finds is one of two states.
func stands(t *testing.T, what string, data []byte, key func() ([]byte, error), before, after world) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "journal"), data, 0o600))
	got, s := found(t, dir, key)
	defer s.Close()
	for _, want := range []world{before, after} {
		if !maps.Equal(got.pods, want.pods) {
			continue
		}
		lost := false
		for uid, value := range want.maps {
			if image, ok := want.pods[uid]; ok && !strings.HasSuffix(image, "!") && got.maps[uid] != value {
				lost = true
			}
		}
		if !lost {
			return
		}
	}
	t.Fatalf("%s: found %v, want %v or %v", what, got, before, after)
}

// TestPowerCuts performs random operations of a node, and cuts the power at
// some bytes of each write. Acknowledged values must be there, others must be
// there completely or not at all, and forgotten values must not reappear.
func TestPowerCuts(t *testing.T) {
	for name, key := range map[string]func() ([]byte, error){"plain": nil, "sealed": keyOf(1)} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			dir, api := t.TempDir(), newServer()
			now, s := found(t, dir, key)
			defer func() { _ = s.Close() }()
			file, rewritten := content(t, dir), 0
			for number := range 250 {
				before := now.clone()
				what := act(t, random, number, s, api, &now)
				if number%10 == 9 {
					must(t, s.Close())
					got, next := found(t, dir, key)
					if s = next; !maps.Equal(got.pods, now.pods) {
						t.Fatalf("after %s and a restart: %v, want %v", what, got, now)
					}
				}
				written := content(t, dir)
				if !bytes.HasPrefix(written, file) {
					rewritten++
					stands(t, what+", rewritten", written, key, now, now)
				} else if size := len(written) - len(file); size > 0 {
					for range 3 {
						cut := len(file) + random.IntN(size)
						stands(t, fmt.Sprintf("%s, cut at %d of %d", what, cut-len(file), size), written[:cut], key, before, now)
						broken := slices.Clone(written)
						broken[cut] ^= 1 << random.IntN(8)
						stands(t, fmt.Sprintf("%s, broken at %d of %d", what, cut-len(file), size), broken, key, before, now)
					}
					stands(t, what, written, key, now, now)
				} else if !maps.Equal(before.pods, now.pods) {
					t.Fatalf("%s was not written", what)
				}
				file = written
			}
			if rewritten < 2 {
				t.Errorf("the file was rewritten %d times", rewritten)
			}
		})
	}
}

// act does one thing at random, and notes it.
func act(t *testing.T, random *rand.Rand, number int, s *Store, api *server, w *world) string {
	t.Helper()
	uid := string('a' + rune(random.IntN(8)))
	p := aPod(uid, func(p *v1.Pod) {
		p.Spec.Containers[0].Image = fmt.Sprint("image-", number)
		p.Spec.Volumes[0].ConfigMap.Name = mapOf(uid)
	})
	_, known := w.pods[uid]
	switch what := random.IntN(10); {
	case what < 4:
		if _, read := api.maps["ns/"+mapOf(uid)]; read {
			readMap(t, s, api, uid) // as its volumes are set up
		}
		mustAdmit(t, s, p)
		if strings.HasSuffix(w.pods[uid], "!") {
			return "admit what has ended, " + uid
		}
		w.pods[uid] = p.Spec.Containers[0].Image
		if m := api.maps["ns/"+mapOf(uid)]; m != nil {
			w.maps[uid] = m.Data["k"][:8]
		}
		return "admit " + uid
	case what < 5 && known:
		must(t, s.Finish(t.Context(), types.UID(uid), succeeded))
		w.pods[uid] = strings.TrimSuffix(w.pods[uid], "!") + "!"
		return "finish " + uid
	case what < 7:
		must(t, s.Forget(t.Context(), types.UID(uid)))
		delete(w.pods, uid)
		delete(w.maps, uid)
		return "forget " + uid
	default:
		api.set("ns", mapOf(uid), fmt.Sprint(number), fmt.Sprintf("%08d", number)+strings.Repeat("x", random.IntN(12000)))
		readMap(t, s, api, uid)
		for other, image := range w.pods {
			if mapOf(other) == mapOf(uid) && !strings.HasSuffix(image, "!") {
				w.maps[other] = fmt.Sprintf("%08d", number)
			}
		}
		return "change " + mapOf(uid)
	}
}

func readMap(t *testing.T, s *Store, api *server, uid string) {
	t.Helper()
	if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", mapOf(uid)); err != nil {
		t.Fatal(err)
	}
}

// TestEveryByte cuts and corrupts one write of several values at each of its
// bytes.
func TestEveryByte(t *testing.T) {
	dir, api := t.TempDir(), newServer()
	api.set("ns", "map-b", "1", "12345678")
	_, s := found(t, dir, nil)
	mustAdmit(t, s, aPod("a"), aPod("b"))
	before := world{map[string]string{"a": "i", "b": "i"}, nil}
	file := content(t, dir)
	readMap(t, s, api, "c")
	mustAdmit(t, s, aPod("c", func(p *v1.Pod) { p.Spec.Volumes[0].ConfigMap.Name = mapOf("c") }))
	after := before.clone()
	after.pods["c"], after.maps = "i", map[string]string{"c": "12345678"}
	written := content(t, dir)
	must(t, s.Close())
	if len(written)-len(file) < 200 {
		t.Fatalf("%d bytes were written", len(written)-len(file))
	}
	for cut := len(file); cut < len(written); cut++ {
		stands(t, fmt.Sprint("cut at ", cut), written[:cut], nil, before, before)
		broken := slices.Clone(written)
		broken[cut] ^= 0x10
		stands(t, fmt.Sprint("broken at ", cut), broken, nil, before, before)
	}
	stands(t, "whole", written, nil, after, after)
}

package bootstrap

import (
	"strings"
	"testing"
)

// theirSignature is the signature of "content" by k8s.io/cluster-bootstrap v0.36.3.
const theirSignature = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4"

func TestVerify(t *testing.T) {
	token, err := ParseToken(goodToken)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(goodHeader, "0123456789abcdef", "content")
	head, mac, _ := strings.Cut(good, "..")
	for _, row := range []struct{ name, signature, want string }{
		{"good", good, ""},
		{"theirs", theirSignature, ""},
		{"another secret", sign(goodHeader, "aaaaaaaaaaaaaaaa", "content"), "does not match the token"},
		{"another content", sign(goodHeader, "0123456789abcdef", "contents"), "does not match the token"},
		{"another token", sign(`{"alg":"HS256","kid":"aaaaaa"}`, "0123456789abcdef", "content"), `by token "aaaaaa"`},
		{"no algorithm", sign(`{"alg":"none","kid":"abcdef"}`, "0123456789abcdef", "content"), `"none", not HS256`},
		{"extensions", sign(`{"alg":"HS256","kid":"abcdef","crit":["b64"]}`, "0123456789abcdef", "content"), "unknown extensions"},
		{"no header", "..", "header"},
		{"no signature", head + "..", "does not match the token"},
		{"half a signature", good[:len(good)-2], "signature"},
		{"with content", head + ".Y29udGVudA." + mac, "not a detached JWS"},
		{"nothing", "", "not a detached JWS"},
		{"padding", head + ".." + mac + "=", "signature"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := verify(row.signature, []byte("content"), token)
			if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

func TestParseToken(t *testing.T) {
	for _, s := range []string{"", ".", "abcdef", "abcdef.", "abcdef.0123456789abcde", "abcdef.0123456789abcdeF", "abcde.0123456789abcdef", "abcdef.0123456789abcdef\n", "abcdef.01234567.9abcdef"} {
		if token, err := ParseToken(s); err == nil {
			t.Errorf("%q is the token %v", s, token)
		}
	}
	token, err := ParseToken(goodToken)
	if err != nil || token.String() != "abcdef.<secret>" || token.bearer() != goodToken {
		t.Errorf("%v, %v", token, err)
	}
}

func FuzzVerify(f *testing.F) {
	good := sign(goodHeader, "0123456789abcdef", "content")
	f.Add(good, "content")
	f.Add(theirSignature, "content")
	f.Add("a..b", "")
	token, err := ParseToken(goodToken)
	if err != nil {
		f.Fatal(err)
	}
	_, mac, _ := strings.Cut(good, "..")
	f.Fuzz(func(t *testing.T, signature, content string) {
		if verify(signature, []byte(content), token) != nil {
			return
		}
		// Nobody without the secret makes another: only those above are good.
		if head, got, _ := strings.Cut(signature, ".."); content != "content" || (got != mac && signature != theirSignature) {
			t.Errorf("%q is a signature of %q by %q", signature, content, head)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add(goodToken)
	f.Add("abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err == nil && (token.bearer() != s || len(s) != 23) {
			t.Errorf("%q is read as %q", s, token.bearer())
		}
		if err != nil && len(s) >= 16 && strings.Contains(err.Error(), s) {
			t.Errorf("the error quotes %q", s)
		}
	})
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte("clusters:\n- cluster:\n    server: x\n"), []byte("sha256:ab"))
	f.Add([]byte("\x00"), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, info, ca []byte) {
		if c, err := parseInfo(info); (c == nil) != (err != nil) {
			t.Errorf("%v, %v", c, err)
		}
		if p, err := parsePin(string(ca)); err == nil && !strings.EqualFold(p.String(), string(ca)) {
			t.Errorf("%q is read as %s", ca, p)
		}
	})
}

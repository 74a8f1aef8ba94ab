package cni
import ("testing";"net/netip")
func TestSmoke(t *testing.T){
 f:=&fake{result: Result{Interfaces: []Interface{{Name:"eth0",Sandbox:"/x"}}, IPs: []IP{{Address: netip.MustParsePrefix("10.1.1.2/24")}}}}
 t.Log(f.call(t,"COMMAND=ADD",sound+"}"))
 t.Log(f.call(t,"COMMAND=VERSION",`{"cniVersion":"0.4.0"}`))
 t.Log(f.call(t,"COMMAND=ADD",`{"cniVersion":"1.0.0","name":"x","ranges":[{"subnet":"10.42.0.1/24"}]}`))
 t.Log(f.call(t,"COMMAND=ADD",sound))
 t.Log(f.call(t,"COMMAND=DEL",sound), f.calls)
 b,err:=Conflist(Config{Bridge:"b0",StateDir:"/run/x",Ranges: []Range{{Subnet:netip.MustParsePrefix("10.42.0.0/24")}}},"pods","1.1.0")
 t.Log(string(b),err)
}

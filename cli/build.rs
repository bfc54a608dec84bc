//! Lets binaries and tests find libtorch where it was at build time, or beside the binary in a release.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Some(libtorch) = std::env::var_os("LIBTORCH") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}/lib", libtorch.to_string_lossy());
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}

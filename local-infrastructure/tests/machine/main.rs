//! Machines without Kubernetes, in their own world: this program starts itself again in new namespaces, where it is
//! root and has the bridge. Everything in them ends with it.

mod fixture;
mod world;

use fixture::{Data, Network, until};
use libtest_mimic::{Arguments, Failed, Trial};
use local_infrastructure::machine::Way;
use std::time::{Duration, Instant};

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list && !world::inside() {
        return world::enter();
    }
    let trials = vec![
        Trial::test("boots_its_bootstrap_data", boots_its_bootstrap_data),
        Trial::test("creates_users", creates_users),
        Trial::test("reports_bootstrap_data_that_fails", reports_bootstrap_data_that_fails),
        Trial::test("keeps_its_disk_across_a_reboot", keeps_its_disk_across_a_reboot),
        Trial::test("restarts_what_died_and_not_what_was_stopped", restarts_what_died_and_not_what_was_stopped),
        Trial::test("waits_for_a_service_that_says_when_it_is_ready", waits_for_a_service_that_says_when_it_is_ready),
        Trial::test("stays_down_after_a_kill", stays_down_after_a_kill),
        Trial::test("is_silent_while_frozen", is_silent_while_frozen),
        Trial::test("is_cut_off_from_one_or_from_all", is_cut_off_from_one_or_from_all),
        Trial::test("loses_a_robbed_disk", loses_a_robbed_disk),
        Trial::test("loses_its_data_and_gets_an_older_copy_back", loses_its_data_and_gets_an_older_copy_back),
        Trial::test("runs_its_bootstrap_commands_again", runs_its_bootstrap_commands_again),
        Trial::test("runs_commands_inside_from_the_first_moment", runs_commands_inside_from_the_first_moment),
        Trial::test("does_not_boot_when_a_fault_says_so", does_not_boot_when_a_fault_says_so),
        Trial::test("starts_once_what_stopped_it_is_gone", starts_once_what_stopped_it_is_gone),
        Trial::test("leaves_nothing_behind", leaves_nothing_behind),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn boots_its_bootstrap_data() -> Result<(), Failed> {
    let network = Network::get();
    let data = Data::new()
        .file("/etc/demo/greeting", "hello {{ ds.meta_data.local_hostname }}")
        .section("ntp: {enabled: true, servers: [10.0.0.1]}")
        .run("date --set=@$(date +%s) && touch /root/clock-set; true")
        .run("hostname > /root/name; ip -4 -oneline address show eth0 > /root/address; mount | grep -c ' on / ' > /root/roots");
    let machine = network.machine("boots", &data)?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    let result = machine.bootstrap()?.ok_or("no result")?;
    assert!(result.succeeded, "{result:?}\n{}", machine.console()?);
    assert_eq!(fixture::read(&machine, "/etc/demo/greeting")?, "hello boots-host");
    assert_eq!(fixture::read(&machine, "/root/name")?, "boots-host\n");
    assert!(fixture::read(&machine, "/root/address")?.contains(&format!("{}/16", machine.address())));
    // The machine can change the settings of its own network, but not those of this computer.
    assert!(!fixture::succeeds(&machine, "echo 1 > /proc/sys/kernel/panic")?);
    assert!(fixture::succeeds(&machine, "echo 1 > /proc/sys/net/ipv4/ip_forward")?);
    assert!(!fixture::succeeds(&machine, "date --set=@$(date +%s)")?, "the clock is the computer's");
    assert!(!fixture::succeeds(&machine, "test -e /root/clock-set")?, "also for bootstrap data");
    machine.destroy()?;
    Ok(())
}

fn creates_users() -> Result<(), Failed> {
    if !world::real_root() {
        // Only one ID is mapped, so no file can be given to another user; see `docs/local-infrastructure.md`.
        return Ok(());
    }
    let data = Data::new()
        .section("users:\n- name: fred\n  sudo: ALL=(ALL) NOPASSWD:ALL")
        .run("su fred -c 'sudo id -u' > /root/id");
    let machine = Network::get().machine("users", &data)?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    assert!(machine.bootstrap()?.is_some_and(|result| result.succeeded), "{}", machine.console()?);
    assert!(fixture::succeeds(&machine, "test $(stat -c %U /home/fred) = fred")?);
    assert_eq!(fixture::read(&machine, "/root/id")?, "0\n");
    machine.destroy()?;
    Ok(())
}

fn reports_bootstrap_data_that_fails() -> Result<(), Failed> {
    let machine = Network::get().machine("fails", &Data::without_sentinel().run("echo this is why; exit 3"))?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    let result = machine.bootstrap()?.ok_or("no result")?;
    assert!(!result.succeeded);
    assert!(result.errors.iter().any(|error| error.contains("scripts-user")), "{result:?}");
    assert!(result.errors.iter().any(|error| error.contains("bootstrap-success.complete")), "{result:?}");
    assert!(machine.console()?.contains("this is why"));
    machine.destroy()?;
    Ok(())
}

fn keeps_its_disk_across_a_reboot() -> Result<(), Failed> {
    let data = Data::new().server().run("echo once >> /root/runs");
    let machine = Network::get().machine("reboots", &data)?;
    until("the server answers", || Ok(fixture::answers(&machine)))?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    let (address, first) = (machine.address(), machine.first_process());
    machine.reboot()?;
    assert_ne!(machine.first_process(), first);
    until("the enabled server answers again", || Ok(fixture::answers(&machine)))?;
    assert_eq!(machine.address(), address);
    until("cloud-init is done", || fixture::succeeds(&machine, "test -e /run/cloud-init/result.json"))?;
    assert_eq!(fixture::read(&machine, "/root/runs")?, "once\n");
    assert!(machine.bootstrap()?.is_some_and(|result| result.succeeded));
    machine.destroy()?;
    Ok(())
}

fn restarts_what_died_and_not_what_was_stopped() -> Result<(), Failed> {
    let machine = Network::get().machine("restarts", &Data::new().server())?;
    until("the server answers", || Ok(fixture::answers(&machine)))?;
    let pid = || fixture::output(&machine, "sed -n s/MainPID=//p /run/server.service.status");
    let first = pid()?;
    assert!(fixture::succeeds(&machine, &format!("kill -9 {first}"))?);
    until("another process serves", || Ok(fixture::answers(&machine) && pid()? != first))?;
    assert!(fixture::succeeds(&machine, "systemctl is-active server")?);
    assert!(fixture::succeeds(&machine, "systemctl stop server")?);
    assert!(!fixture::succeeds(&machine, "systemctl is-active server")?);
    // This is longer than any restart takes, so an unwanted restart would have happened.
    let stopped = Instant::now();
    until("a while", || Ok(stopped.elapsed() > Duration::from_millis(1500)))?;
    assert!(!fixture::answers(&machine), "{}", machine.console()?);
    machine.destroy()?;
    Ok(())
}

fn waits_for_a_service_that_says_when_it_is_ready() -> Result<(), Failed> {
    let script = "import os, socket, time\ntime.sleep(0.4)\nopen('/root/ready', 'w')\n\
                  socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])\n\
                  time.sleep(1000)\n";
    let unit = "[Service]\nType=notify\nExecStart=/usr/bin/python3 /root/service.py\n\
                [Install]\nWantedBy=multi-user.target\n";
    let data = Data::new().file("/root/service.py", script).file("/etc/systemd/system/notifies.service", unit).run(
        "date +%s%N > /root/before; systemctl enable --now notifies; date +%s%N > /root/after; test -e /root/ready",
    );
    let machine = Network::get().machine("notifies", &data)?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    assert!(machine.bootstrap()?.is_some_and(|result| result.succeeded), "{}", machine.console()?);
    let time = |name: &str| -> Result<u64, Failed> { Ok(fixture::read(&machine, name)?.trim().parse()?) };
    let milliseconds = (time("/root/after")? - time("/root/before")?) / 1_000_000;
    // It must not return before the service is ready, nor only after the start timeout, which is 90 s.
    assert!((400..60_000).contains(&milliseconds), "systemctl took {milliseconds} ms");
    assert!(fixture::succeeds(&machine, "systemctl is-active notifies")?);
    machine.destroy()?;
    Ok(())
}

/// Acts as a person would, with the program.
fn stays_down_after_a_kill() -> Result<(), Failed> {
    let machine = Network::get().machine("killed", &Data::new().server())?;
    until("the server answers", || Ok(fixture::answers(&machine)))?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    let line = || -> Result<String, Failed> {
        let list = fixture::cli(&["list"])?;
        Ok(list.lines().find(|line| line.contains("default/killed")).ok_or("it is not listed")?.to_owned())
    };
    assert!(line()?.contains(" on ") && line()?.contains("succeeded"), "{}", line()?);
    assert_eq!(fixture::cli(&["exec", "default/killed", "--", "echo", "-n", "hello"])?, "hello");
    fixture::cli(&["kill", "default/killed"])?;
    assert!(!machine.is_running() && !machine.is_powered_on());
    assert!(!fixture::answers(&machine));
    assert!(line()?.contains(" off "), "{}", line()?);
    fixture::cli(&["power-on", "default/killed"])?;
    until("the server answers again", || Ok(fixture::answers(&machine)))?;
    assert!(fixture::cli(&["console", "default/killed"])?.contains("Bootstrap data succeeded"));
    let error = fixture::cli(&["kill", "default/no-such-machine"]).err().ok_or("it is killed")?;
    assert!(error.message().is_some_and(|text| text.contains("there is no machine default/no-such-machine")));
    machine.destroy()?;
    Ok(())
}

fn is_silent_while_frozen() -> Result<(), Failed> {
    let machine = Network::get().machine("frozen", &Data::new().server())?;
    until("the server answers", || Ok(fixture::answers(&machine)))?;
    machine.freeze()?;
    assert!(machine.is_running());
    assert!(!fixture::answers(&machine));
    machine.thaw()?;
    until("the server answers again", || Ok(fixture::answers(&machine)))?;
    // A process that creates another one stops only after the new one runs its own program.
    let spawns = "for i in 1 2 3 4; do setsid sh -c 'while :; do /bin/true; done' </dev/null >/dev/null 2>&1 & done";
    assert!(fixture::succeeds(&machine, spawns)?);
    for _ in 0..10 {
        machine.freeze()?;
        machine.thaw()?;
    }
    machine.destroy()?;
    Ok(())
}

fn is_cut_off_from_one_or_from_all() -> Result<(), Failed> {
    let network = Network::get();
    let one = network.machine("cut-one", &Data::new().server())?;
    let other = network.machine("cut-other", &Data::new().server())?;
    let reaches = |from: &fixture::Machine, to: &fixture::Machine| {
        fixture::succeeds(from, &format!("timeout 1 bash -c '</dev/tcp/{}/8080'", to.address()))
    };
    until("both serve", || Ok(fixture::answers(&one) && fixture::answers(&other)))?;
    assert!(reaches(&one, &other)? && reaches(&other, &one)?);

    one.cut_off_from(other.address())?;
    assert!(!reaches(&one, &other)? && !reaches(&other, &one)?);
    assert!(fixture::answers(&one), "only one peer is cut off");

    one.cut_off()?;
    assert!(!fixture::answers(&one));
    assert!(reaches(&one, &one)?, "a machine always reaches itself");
    assert!(fixture::answers(&other));

    one.reboot()?;
    until("it serves itself", || reaches(&one, &one))?;
    assert!(!fixture::answers(&one), "a reboot does not mend the network");

    one.reconnect()?;
    assert!(fixture::answers(&one) && reaches(&one, &other)? && reaches(&other, &one)?);

    for way in [Way::In, Way::Out] {
        one.cut_off_one_way(way)?;
        assert!(!fixture::answers(&one) && !reaches(&one, &other)?, "no connection works one way only");
    }
    one.lose_packets(100)?;
    assert!(!fixture::answers(&one));
    one.lose_packets(101).unwrap_err();
    one.reconnect()?;
    assert!(fixture::answers(&one));
    one.destroy()?;
    other.destroy()?;
    Ok(())
}

fn loses_a_robbed_disk() -> Result<(), Failed> {
    let data =
        Data::new().run("mkdir -p /var/lib/etcd/member && echo x > /var/lib/etcd/member/data && echo y > /etc/kept");
    let machine = Network::get().machine("robbed", &data)?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    machine.rob_disk()?;
    until("it runs again", || Ok(machine.is_running() && fixture::succeeds(&machine, "test -e /etc/kept")?))?;
    assert_eq!(fixture::output(&machine, "ls -A /var/lib/etcd")?, "");
    machine.destroy()?;
    Ok(())
}

/// Acts as a person would, with the program.
fn loses_its_data_and_gets_an_older_copy_back() -> Result<(), Failed> {
    let data = Data::new().run("mkdir -p /var/lib/etcd/member && echo old > /var/lib/etcd/member/data");
    let machine = Network::get().machine("older", &data)?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    let error = machine.put_back_data().err().ok_or("something is put back")?.to_string();
    assert!(error.contains("no copy of the etcd data of machine default/older has been saved"), "{error}");
    assert!(machine.is_running(), "a fault that cannot happen does nothing");
    fixture::cli(&["save-data", "default/older"])?;
    let first = machine.first_process();
    assert!(fixture::succeeds(&machine, "echo new > /var/lib/etcd/member/data")?);
    assert_eq!(fixture::read(&machine, "/var/lib/etcd/member/data")?, "new\n");

    fixture::cli(&["delete-data", "default/older"])?;
    assert_eq!(machine.first_process(), first, "it goes on running");
    assert!(!fixture::succeeds(&machine, "test -e /var/lib/etcd")?);
    fixture::cli(&["put-back-data", "default/older"])?;
    assert!(machine.is_running() && machine.first_process() != first);
    assert_eq!(fixture::read(&machine, "/var/lib/etcd/member/data")?, "old\n");

    machine.power_off()?;
    machine.save_data()?;
    machine.delete_data()?;
    machine.put_back_data()?;
    assert!(!machine.is_running(), "one that is off stays off");
    machine.delete_data()?;
    machine.power_on()?;
    assert_eq!(fixture::output(&machine, "ls -A /var/lib/etcd")?, "");
    machine.destroy()?;
    Ok(())
}

fn runs_its_bootstrap_commands_again() -> Result<(), Failed> {
    let machine = Network::get().machine("again", &Data::new().run("echo once >> /root/runs"))?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    machine.reboot()?;
    assert!(machine.rerun_bootstrap(Duration::from_secs(10))?.status.success());
    assert_eq!(fixture::read(&machine, "/root/runs")?, "once\nonce\n");
    assert!(fixture::succeeds(&machine, "echo 'sleep 60' > /var/lib/cloud/instance/scripts/runcmd")?);
    assert!(!machine.rerun_bootstrap(Duration::from_secs(1))?.status.success(), "it is given a second");
    machine.destroy()?;
    Ok(())
}

/// A command that comes too early must not reach this computer's files: `delete-data` would delete them.
fn runs_commands_inside_from_the_first_moment() -> Result<(), Failed> {
    let network = Network::get();
    network.machines.fault_no_boot("default", "early")?;
    let machine = network.machine("early", &Data::new())?;
    assert!(fixture::succeeds(&machine, "touch /root/inside")?);
    for _ in 0..20 {
        machine.kill()?;
        machine.power_on()?;
        assert_eq!(fixture::output(&machine, "ls /root; hostname")?, "inside\nearly-host");
    }
    machine.destroy()?;
    Ok(())
}

fn does_not_boot_when_a_fault_says_so() -> Result<(), Failed> {
    let network = Network::get();
    network.machines.fault_no_boot("default", "no-boot")?;
    network.machines.fault_boot_delay("default", "slow-boot", Duration::from_millis(1200))?;
    let never = network.machine("no-boot", &Data::new().server())?;
    let begin = Instant::now();
    let slow = network.machine("slow-boot", &Data::new().server())?;
    until("the slow one serves", || Ok(fixture::answers(&slow)))?;
    assert!(begin.elapsed() > Duration::from_millis(1200));
    assert!(never.is_running() && never.bootstrap()?.is_none() && !fixture::answers(&never));
    assert_eq!(fixture::output(&never, "ls /run/cloud-init 2>/dev/null")?, "");

    network.machines.clear_faults("default", "no-boot")?;
    never.reboot()?;
    until("it serves once the fault is gone", || Ok(fixture::answers(&never)))?;
    never.destroy()?;
    slow.destroy()?;
    Ok(())
}

fn starts_once_what_stopped_it_is_gone() -> Result<(), Failed> {
    let network = Network::get();
    let mut spec = network.spec("late-bridge")?;
    spec.bridge = "no-bridge".to_owned();
    let machine = network.machines.create(spec, Data::new().text().as_bytes())?;
    let error = machine.power_on().err().ok_or("it starts without a bridge")?.to_string();
    assert!(error.contains("no-bridge"), "{error}");
    assert!(!machine.was_started() && !machine.is_running());
    world::add_bridge("no-bridge")?;
    machine.power_on()?;
    until("the bootstrap data ran", || Ok(machine.bootstrap()?.is_some()))?;
    assert!(machine.was_started());
    machine.destroy()?;
    Ok(())
}

fn leaves_nothing_behind() -> Result<(), Failed> {
    let network = Network::get();
    let machine = network.machine("gone", &Data::new().server())?;
    until("the server answers", || Ok(fixture::answers(&machine)))?;
    let (address, directory) = (machine.address(), machine.directory().to_owned());
    let first = machine.first_process().ok_or("not running")?;
    let namespaces = std::fs::read_link(format!("/proc/{first}/ns/net"))?;
    assert!(world::processes_in(&namespaces)? > 1);
    machine.freeze()?;
    machine.clone().destroy()?;
    assert_eq!(world::processes_in(&namespaces)?, 0);
    assert!(!directory.exists());
    assert!(network.machines.get("default", "gone").is_err());
    assert!(network.machines.reservations().all()?.iter().all(|(taken, _)| *taken != address));
    assert!(!world::links()?.contains(&format!("cape-{:08x}", u32::from(address))));
    assert!(!std::fs::read_to_string("/proc/self/mountinfo")?.contains("/gone/"));
    machine.destroy()?;
    Ok(())
}
